//! A node of Cassandra for tests: a process of its own on the loopback interface.
//!
//! The jars of `cassandra-all` are in the folder that `PELTON_CASSANDRA_JARS` names
//! (`script/test cassandra` brings them there); `PELTON_CASSANDRA` names a node that runs already,
//! as `HOST:PORT`. Where there is neither, a test ends with a word; the stage fails in CI then.
//! `PELTON_PAXOS=v1` starts a node with the first variant of Paxos instead of the second.

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
    plan: Option<NodePlan>,
    /// Where it takes CQL.
    pub address: String,
}

/// How a node is started.
struct NodePlan {
    jars: PathBuf,
    folder: PathBuf,
    storage_port: u16,
    native_port: u16,
    /// It asks for a password (the user is `cassandra`, and so is the password), and for TLS.
    is_secure: bool,
}

/// Starts a node. `None`: there is nothing to start here.
pub fn start_node() -> Option<CassandraNode> {
    if let Ok(address) = std::env::var("PELTON_CASSANDRA") {
        return Some(CassandraNode {
            process: None,
            plan: None,
            address,
        });
    }
    start_process(false)
}

/// Starts a node that asks for a password and for TLS.
#[cfg(feature = "tls")]
pub fn start_secure_node() -> Option<CassandraNode> {
    start_process(true)
}

/// Starts a node at 127.0.0.1. `None`: there is nothing to start here.
fn start_process(is_secure: bool) -> Option<CassandraNode> {
    let Some(jars) = std::env::var_os("PELTON_CASSANDRA_JARS") else {
        println!(
            "SKIPPED: PELTON_CASSANDRA_JARS names no folder with cassandra-all and what it needs; \
             `script/test cassandra` has it"
        );
        return None;
    };
    let (storage_port, native_port) = free_ports().expect("the machine has ports");
    let name = format!("pelton-cassandra-{}-{storage_port}", std::process::id());
    let plan = NodePlan {
        jars: PathBuf::from(&jars),
        folder: std::env::temp_dir().join(name),
        storage_port,
        native_port,
        is_secure,
    };
    Some(CassandraNode::start(plan).expect("the node starts"))
}

impl CassandraNode {
    fn start(plan: NodePlan) -> io::Result<CassandraNode> {
        let folder = &plan.folder;
        fs::create_dir_all(folder)?;
        fs::write(folder.join("cassandra.yaml"), yaml(&plan))?;
        fs::write(folder.join("logback.xml"), LOGBACK)?;
        if plan.is_secure && !folder.join("key.p12").exists() {
            make_key(folder)?;
        }
        let address = format!("127.0.0.1:{}", plan.native_port);
        let mut node = CassandraNode {
            process: Some(plan.spawn()?),
            plan: Some(plan),
            address,
        };
        node.wait_until_it_listens()?;
        Ok(node)
    }

    /// Returns the certificate of a secure node, in DER.
    #[cfg(feature = "tls")]
    pub fn certificate(&self) -> Vec<u8> {
        let plan = self.plan.as_ref().expect("a node of this test");
        fs::read(plan.folder.join("certificate.der")).expect("it was made")
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
        let file = self.plan.as_ref().map(|plan| plan.folder.join("node.log"));
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
        make_ready(config, 1, default_config);
        Cassandra::start(config).expect("the keyspace is ready")
    }
}

/// Makes a keyspace ready.
pub fn make_ready(config: &CassandraConfig, replicas: u8, default_config: DatabaseConfig) {
    let options = InitOptions {
        replicas,
        default_config,
    };
    init(config, options).expect("the keyspace is made ready");
}

impl NodePlan {
    fn spawn(&self) -> io::Result<Child> {
        let log = fs::File::create(self.folder.join("node.log"))?;
        Command::new("java")
            .args(java_arguments(&self.folder))
            .arg("-cp")
            .arg(format!("{}/*", self.jars.display()))
            .arg("org.apache.cassandra.service.CassandraDaemon")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }
}

/// Makes a key with a certificate for 127.0.0.1.
fn make_key(folder: &Path) -> io::Result<()> {
    const STORE: [&str; 6] = [
        "-keystore",
        "key.p12",
        "-storetype",
        "PKCS12",
        "-storepass",
        "cassandra",
    ];
    let make = "-genkeypair -alias node -keyalg RSA -keysize 2048 -dname CN=node -validity 100 \
                -ext san=ip:127.0.0.1";
    for what in [make, "-exportcert -alias node -file certificate.der"] {
        let mut keytool = Command::new("keytool");
        keytool
            .args(what.split_whitespace())
            .args(STORE)
            .current_dir(folder);
        if !keytool.output()?.status.success() {
            return Err(io::Error::other(format!("keytool {what} failed")));
        }
    }
    Ok(())
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

fn free_ports() -> io::Result<(u16, u16)> {
    let (one, other) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    Ok((one.local_addr()?.port(), other.local_addr()?.port()))
}

fn yaml(plan: &NodePlan) -> String {
    let folder = plan.folder.display();
    let (storage, native) = (plan.storage_port, plan.native_port);
    // The first variant is the one that Cassandra has by default.
    let paxos = std::env::var("PELTON_PAXOS").unwrap_or_else(|_| "v2".to_owned());
    let secure = match plan.is_secure {
        true => format!(
            "authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
client_encryption_options:
  enabled: true
  optional: false
  keystore: {folder}/key.p12
  keystore_password: cassandra
  store_type: PKCS12
  require_client_auth: false
"
        ),
        false => String::new(),
    };
    format!(
        "cluster_name: pelton
num_tokens: 1
auto_bootstrap: false
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
paxos_variant: {paxos}
{secure}"
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
        "-Dcassandra.consistent.rangemovement=false".into(),
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
        if let Some(plan) = &self.plan {
            fs::remove_dir_all(&plan.folder).ok();
        }
    }
}
