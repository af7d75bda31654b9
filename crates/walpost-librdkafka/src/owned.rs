use std::ptr::NonNull;

/// Something of librdkafka's that is freed when it goes.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    pointer: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes what a constructor of librdkafka's returned, with the function
    /// that belongs to it.
    pub(crate) fn new(pointer: *mut T, free: unsafe extern "C" fn(*mut T)) -> Self {
        let pointer = NonNull::new(pointer).expect("librdkafka ends the process without memory");
        Self { pointer, free }
    }

    pub(crate) fn ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from the constructor that `free` belongs
        // to, and is freed here alone.
        unsafe { (self.free)(self.pointer.as_ptr()) }
    }
}
