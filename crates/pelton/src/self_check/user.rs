//! Who looks: what a user may do is not what another one may.

use std::path::Path;

use rustix::process::geteuid;

use super::fact::MachineFact;

/// The users of the machine, and which one this process is.
pub(super) struct Users {
    /// The text of `/etc/passwd`; users that come from elsewhere are shown by their numbers.
    passwd: String,
    /// This one, as the kernel checks it.
    own: u32,
}

impl Users {
    pub(super) fn read(root: &Path) -> Users {
        Users {
            passwd: super::text(root, "etc/passwd"),
            own: geteuid().as_raw(),
        }
    }

    /// Returns the name of a user, or his number if it has none.
    pub(super) fn name(&self, uid: u32) -> String {
        let of_line = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let number: u32 = fields.nth(1)?.parse().ok()?;
            (number == uid && !name.is_empty()).then(|| name.to_owned())
        };
        let found = self.passwd.lines().find_map(of_line);
        found.unwrap_or_else(|| uid.to_string())
    }

    /// Returns the name of the user that this process is.
    pub(super) fn own_name(&self) -> String {
        self.name(self.own)
    }

    /// Returns whose limits and rights all other facts are about.
    pub(super) fn fact(&self) -> MachineFact {
        let value = format!("{}, number {}", self.own_name(), self.own);
        let fact =
            MachineFact::ok("user", value).with_numbers([("user_id", u64::from(self.own).into())]);
        match self.own {
            0 => fact.note(
                "a service of another user gets something else: `pelton self-check --service` \
                 looks as that one",
            ),
            _ => fact,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_check::Judgement;

    fn users(own: u32) -> Users {
        Users {
            passwd: "root:x:0:0:root:/root:/bin/bash\nodd\n:x:7:\npelton:x:998:998::/:/nologin\n"
                .into(),
            own,
        }
    }

    #[test]
    fn users_have_names_or_numbers() {
        let users = users(0);
        assert_eq!(users.name(998), "pelton");
        for nobody in [7, 9, 99] {
            assert_eq!(users.name(nobody), nobody.to_string());
        }
    }

    #[test]
    fn only_root_is_told_that_a_service_gets_something_else() {
        let fact = users(0).fact();
        assert_eq!(
            (fact.value.as_str(), fact.judgement),
            ("root, number 0", Judgement::Note)
        );
        let fact = users(998).fact();
        assert_eq!(
            (fact.value.as_str(), fact.judgement),
            ("pelton, number 998", Judgement::Ok)
        );
        assert_eq!(fact.numbers, [("user_id", 998.into())]);
    }
}
