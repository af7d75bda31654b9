//! Who a service runs as. PostgreSQL refuses to run as root.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use crate::LocalError;

const POSTGRES_USER: &str = "postgres";

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Account {
    /// The user that PostgreSQL must run as: `postgres` when we are root, else
    /// `None`, which is ourselves.
    pub(crate) fn for_postgres() -> Result<Option<Self>, LocalError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd =
            fs::read_to_string("/etc/passwd").map_err(LocalError::io("read", "/etc/passwd"))?;
        find(&passwd, POSTGRES_USER)
            .map(Some)
            .ok_or(LocalError::UserMissing { user: POSTGRES_USER })
    }

    pub(crate) fn own(&self, path: &Path) -> Result<(), LocalError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(LocalError::io("change the owner of", path.display()))
    }

    /// Checks that this user may enter `path` and every folder above it.
    pub(crate) fn check_way_to(&self, path: &Path) -> Result<(), LocalError> {
        let path = path.canonicalize().map_err(LocalError::io("resolve", path.display()))?;
        for folder in path.ancestors() {
            let metadata =
                fs::metadata(folder).map_err(LocalError::io("read", folder.display()))?;
            if !self.may_enter(metadata.uid(), metadata.gid(), metadata.mode()) {
                return Err(LocalError::Untraversable {
                    path: folder.to_owned(),
                    user: self.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn may_enter(&self, uid: u32, gid: u32, mode: u32) -> bool {
        let bit = match () {
            () if uid == self.uid => 0o100,
            () if gid == self.gid => 0o010,
            () => 0o001,
        };
        mode & bit != 0
    }
}

fn find(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account { name: name.to_owned(), uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let passwd = "root:x:0:0::/:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:101:104:a,b:/var:\n";
        let found = find(passwd, "postgres").unwrap();
        assert_eq!((found.uid, found.gid), (101, 104));
        assert_eq!(find(passwd, "post"), None);
    }

    #[test]
    fn the_first_matching_class_of_permissions_counts() {
        let account = Account { name: "postgres".into(), uid: 5, gid: 6 };
        assert!(account.may_enter(5, 0, 0o700));
        assert!(!account.may_enter(5, 0, 0o077));
        assert!(account.may_enter(0, 6, 0o710));
        assert!(!account.may_enter(0, 0, 0o770));
        assert!(account.may_enter(0, 0, 0o701));
    }
}
