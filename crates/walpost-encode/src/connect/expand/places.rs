use std::collections::HashMap;

/// Up to so many names are compared one by one, which is faster than a hash.
pub(crate) const FEW: usize = 16;

/// Where names stand in a list, found in a time that does not grow with it.
pub(crate) struct Places<'a, T> {
    list: &'a [T],
    name: fn(&'a T) -> &'a str,
    many: Option<HashMap<&'a str, usize>>,
}

impl<'a, T> Places<'a, T> {
    /// Of names that differ.
    pub(crate) fn of(list: &'a [T], name: fn(&'a T) -> &'a str) -> Self {
        let many = (list.len() > FEW)
            .then(|| list.iter().enumerate().map(|(place, item)| (name(item), place)).collect());
        Self { list, name, many }
    }

    /// The item of this name.
    pub(crate) fn find(&self, name: &str) -> Option<&'a T> {
        match &self.many {
            Some(many) => many.get(name).map(|place| &self.list[*place]),
            None => self.list.iter().find(|item| (self.name)(item) == name),
        }
    }
}
