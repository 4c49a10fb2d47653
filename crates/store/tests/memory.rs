//! The store in memory: what every engine must do.

use store::{Clock, DatabaseConfig, Outcomes, Store, StoreConfig, VolatileCommitter, WriteBatch};
use testkit::suite::{Engine, run_cases, run_property};

struct Memory {
    store: Store,
    committer: VolatileCommitter,
}

impl Engine for Memory {
    fn store(&self) -> &Store {
        &self.store
    }

    fn run(&mut self, batch: &mut WriteBatch, clock: &mut dyn Clock, outcomes: &mut Outcomes) {
        drop(self.committer.run(batch, clock, outcomes));
        for database in self.store.databases() {
            let view = self
                .store
                .view(database.id)
                .expect("nobody drops it meanwhile");
            assert_eq!(view.verify(), view.statistics().memory_bytes);
        }
    }

    fn database_config(&self) -> DatabaseConfig {
        DatabaseConfig::default()
    }
}

fn make(config: StoreConfig) -> Box<dyn Engine> {
    let store = Store::in_memory(config).expect("the configuration is valid");
    let committer = store.committer();
    Box::new(Memory { store, committer })
}

#[test]
fn memory_passes_all_cases() {
    run_cases(&make);
}

#[test]
fn memory_equals_the_model() {
    run_property(&make);
}
