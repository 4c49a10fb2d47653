//! A node of Cassandra for tests: a process of its own on the loopback interface.
//!
//! The jars of `cassandra-all` are in the folder that `PELTON_CASSANDRA_JARS` names
//! (`script/test cassandra` brings them there); `PELTON_CASSANDRA` names a node that runs already,
//! as `HOST:PORT`. Where there is neither, a test ends with a word; the stage fails in CI then.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cassandra::{Cassandra, CassandraConfig, InitOptions, init};
use store::DatabaseConfig;

/// How long a node may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// A node, ended when this is dropped.
pub struct CassandraNode {
    process: Option<Child>,
    folder: Option<PathBuf>,
    /// Where it takes CQL.
    pub address: String,
}

/// Starts a node. `None`: there is nothing to start here.
pub fn start_node() -> Option<CassandraNode> {
    if let Ok(address) = std::env::var("PELTON_CASSANDRA") {
        return Some(CassandraNode {
            process: None,
            folder: None,
            address,
        });
    }
    let Some(jars) = std::env::var_os("PELTON_CASSANDRA_JARS") else {
        return skip("PELTON_CASSANDRA_JARS names no folder with cassandra-all and what it needs");
    };
    Some(CassandraNode::start(Path::new(&jars)).expect("the node starts"))
}

fn skip(reason: &str) -> Option<CassandraNode> {
    println!("SKIPPED: {reason}; `script/test cassandra` has it");
    None
}

impl CassandraNode {
    fn start(jars: &Path) -> io::Result<CassandraNode> {
        let folder = std::env::temp_dir().join(format!("pelton-cassandra-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let ports: Vec<u16> = free_ports()?;
        let [storage, native] = ports[..] else {
            return Err(io::Error::other("two ports were asked for"));
        };
        fs::write(
            folder.join("cassandra.yaml"),
            yaml(&folder, storage, native),
        )?;
        fs::write(folder.join("logback.xml"), LOGBACK)?;
        let log = fs::File::create(folder.join("node.log"))?;
        let process = Command::new("java")
            .args(java_arguments(&folder))
            .arg("-cp")
            .arg(format!("{}/*", jars.display()))
            .arg("org.apache.cassandra.service.CassandraDaemon")
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut node = CassandraNode {
            process: Some(process),
            folder: Some(folder),
            address: format!("127.0.0.1:{native}"),
        };
        node.wait_until_it_listens()?;
        Ok(node)
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < START_TIMEOUT {
            if TcpStream::connect(&self.address).is_ok() {
                println!("the node started in {:?}", begin.elapsed());
                return Ok(());
            }
            if let Some(process) = &mut self.process
                && let Some(status) = process.try_wait()?
            {
                return Err(io::Error::other(format!(
                    "it ended, {status}: {}",
                    self.log()
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other(format!(
            "it did not start: {}",
            self.log()
        )))
    }

    /// Returns the end of its log.
    fn log(&self) -> String {
        let file = self.folder.as_ref().map(|folder| folder.join("node.log"));
        let text = file
            .and_then(|file| fs::read_to_string(file).ok())
            .unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Stops its process for a while: it answers nothing, and its connections stay.
    pub fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("a node of this test");
        let id = process.id().to_string();
        let status = Command::new("kill").args([signal, &id]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Returns how to reach it, with a clock that runs.
    pub fn config(&self, keyspace: &str) -> CassandraConfig {
        self.config_with(keyspace, Arc::new(wall_clock_us))
    }

    /// The same with a clock that shows what it is set to.
    pub fn config_with(
        &self,
        keyspace: &str,
        now_us: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> CassandraConfig {
        CassandraConfig {
            contacts: vec![self.address.clone()],
            keyspace: keyspace.to_owned(),
            datacenter: None,
            credentials: None,
            #[cfg(feature = "tls")]
            tls: None,
            now_us,
            seed: SEED.fetch_add(1, Ordering::Relaxed),
            log: Arc::new(|message| println!("log: {message}")),
        }
    }

    /// Makes a keyspace ready and opens it.
    pub fn open(&self, config: &CassandraConfig, default_config: DatabaseConfig) -> Cassandra {
        let options = InitOptions {
            replicas: 1,
            default_config,
        };
        init(config, options).expect("the keyspace is made ready");
        Cassandra::start(config).expect("the keyspace is ready")
    }
}

/// Each gateway has its own.
static SEED: AtomicU64 = AtomicU64::new(1);

/// Returns the microseconds since 1970.
pub fn wall_clock_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Returns a name that no keyspace of an earlier run has.
pub fn fresh_keyspace(name: &str) -> String {
    format!("{name}_{}", wall_clock_us())
}

fn free_ports() -> io::Result<Vec<u16>> {
    let listeners: io::Result<Vec<TcpListener>> =
        (0..2).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    listeners?
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

fn yaml(folder: &Path, storage: u16, native: u16) -> String {
    let folder = folder.display();
    format!(
        "cluster_name: pelton
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
saved_caches_directory: {folder}/saved_caches
hints_directory: {folder}/hints
cdc_raw_directory: {folder}/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: '127.0.0.1:{storage}'}}]
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
storage_port: {storage}
native_transport_port: {native}
endpoint_snitch: SimpleSnitch
auto_snapshot: false
paxos_variant: v2
"
    )
}

/// What a node of version 5 wants from Java 17.
fn java_arguments(folder: &Path) -> Vec<String> {
    const EXPORTS: [&str; 8] = [
        "java.base/jdk.internal.misc",
        "java.base/jdk.internal.ref",
        "java.base/sun.nio.ch",
        "java.management.rmi/com.sun.jmx.remote.internal.rmi",
        "java.rmi/sun.rmi.registry",
        "java.rmi/sun.rmi.server",
        "java.rmi/sun.rmi.transport.tcp",
        "java.sql/java.sql",
    ];
    const OPENS: [&str; 16] = [
        "java.base/java.io",
        "java.base/java.lang",
        "java.base/java.lang.module",
        "java.base/java.lang.reflect",
        "java.base/java.nio",
        "java.base/java.util",
        "java.base/java.util.concurrent",
        "java.base/java.util.concurrent.atomic",
        "java.base/jdk.internal.loader",
        "java.base/jdk.internal.math",
        "java.base/jdk.internal.module",
        "java.base/jdk.internal.ref",
        "java.base/jdk.internal.reflect",
        "java.base/jdk.internal.util.jar",
        "java.base/sun.nio.ch",
        "jdk.management/com.sun.management.internal",
    ];
    let place = folder.display();
    let mut arguments: Vec<String> = vec![
        "-Xms512M".into(),
        "-Xmx512M".into(),
        "-XX:+UseSerialGC".into(),
        "-XX:TieredStopAtLevel=1".into(),
        "-Djdk.attach.allowAttachSelf=true".into(),
        "-Dio.netty.tryReflectionSetAccessible=true".into(),
        "-Dcassandra-foreground=yes".into(),
        "-Dcassandra.ring_delay_ms=100".into(),
        "-Dcassandra.skip_wait_for_gossip_to_settle=0".into(),
        "-Dcassandra.superuser_setup_delay_ms=0".into(),
        "-Dcassandra.available_processors=2".into(),
        format!("-Dcassandra.config=file://{place}/cassandra.yaml"),
        format!("-Dcassandra.storagedir={place}"),
        format!("-Dcassandra.logdir={place}"),
        format!("-Dlogback.configurationFile=file://{place}/logback.xml"),
    ];
    let exports = EXPORTS.map(|one| format!("--add-exports={one}=ALL-UNNAMED"));
    let opens = OPENS.map(|one| format!("--add-opens={one}=ALL-UNNAMED"));
    arguments.extend(exports.into_iter().chain(opens));
    arguments
}

const LOGBACK: &str = "<configuration>
  <appender name='OUT' class='ch.qos.logback.core.ConsoleAppender'>
    <encoder><pattern>%-5level %d{HH:mm:ss.SSS} %logger{20} %msg%n</pattern></encoder>
  </appender>
  <root level='WARN'><appender-ref ref='OUT'/></root>
</configuration>
";

impl Drop for CassandraNode {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().ok();
            process.wait().ok();
        }
        if let Some(folder) = &self.folder {
            fs::remove_dir_all(folder).ok();
        }
    }
}
