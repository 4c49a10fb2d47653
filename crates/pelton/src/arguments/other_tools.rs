//! Words of other tools, and what to write here instead.

/// Commands of other tools, and what does here what they do there. The first word is that of a
/// group of commands.
pub(super) const COMMANDS: &[(&str, &str, &str)] = &[
    ("", "decr", "`pelton incr KEY -1` subtracts 1"),
    ("", "incrby", "`pelton incr KEY N` adds N"),
    ("", "decrby", "`pelton incr KEY -N` subtracts N"),
    ("", "keys", "`pelton ls --prefix TEXT` lists keys"),
    (
        "",
        "list",
        "`pelton ls --prefix TEXT` lists keys, `pelton blob list` blobs",
    ),
    (
        "",
        "mget",
        "`pelton batch` reads many keys at once, one operation a line",
    ),
    (
        "",
        "mset",
        "`pelton batch` writes many keys at once, one operation a line",
    ),
    (
        "",
        "exists",
        "`pelton get KEY` ends with code 1 if the key is not there",
    ),
    (
        "",
        "expire",
        "`pelton put KEY VALUE --ttl TIME` writes a value that expires",
    ),
    (
        "",
        "ttl",
        "`pelton get KEY --output json` prints when the entry expires",
    ),
    ("", "rm", "`pelton delete KEY` removes a key"),
    ("", "remove", "`pelton delete KEY` removes a key"),
    ("", "unlink", "`pelton delete KEY` removes a key"),
    (
        "",
        "flushall",
        "`pelton delete --all` removes all keys of a database",
    ),
    (
        "",
        "flushdb",
        "`pelton delete --all` removes all keys of a database",
    ),
    (
        "",
        "ping",
        "`pelton status` asks a server whether it is ready",
    ),
    (
        "",
        "info",
        "`pelton status` tells what a server is and holds",
    ),
    (
        "",
        "health",
        "`pelton status` asks a server whether it is ready",
    ),
    ("", "start", "`pelton serve` starts a server"),
    ("", "server", "`pelton serve` starts a server"),
    ("", "run", "`pelton serve` starts a server"),
    (
        "",
        "stop",
        "a server stops at Ctrl-C or SIGTERM: `kill PID`",
    ),
    (
        "",
        "shutdown",
        "a server stops at Ctrl-C or SIGTERM: `kill PID`",
    ),
    (
        "",
        "setnx",
        "`pelton put KEY VALUE --if-absent` writes only what is not there",
    ),
    (
        "",
        "setex",
        "`pelton put KEY VALUE --ttl TIME` writes a value that expires",
    ),
    (
        "",
        "psetex",
        "`pelton put KEY VALUE --ttl TIME` writes a value that expires",
    ),
    (
        "",
        "getset",
        "`pelton put KEY VALUE --previous` writes, and prints what was there",
    ),
    (
        "",
        "getdel",
        "`pelton delete KEY --previous` removes a key, and prints what was there",
    ),
    (
        "",
        "hget",
        "a value is one text or one list of bytes; `pelton get KEY` prints it",
    ),
    (
        "",
        "hset",
        "a value is one text or one list of bytes; `pelton put KEY VALUE` writes it",
    ),
    (
        "",
        "txn",
        "`pelton transact` compares keys, then does one of two lists of operations",
    ),
    (
        "",
        "multi",
        "`pelton transact` compares keys, then does one of two lists of operations",
    ),
    ("", "dbsize", "`pelton count` counts the keys of a database"),
    (
        "",
        "monitor",
        "`pelton watch` prints what is changed in a database",
    ),
    (
        "",
        "mb",
        "there are no buckets; `pelton database create NAME` makes a database, which holds blobs",
    ),
    (
        "",
        "cat",
        "`pelton get KEY` prints a value, `pelton download NAME --to -` a blob",
    ),
    (
        "",
        "stat",
        "`pelton blob stat NAME` describes a blob, `pelton get KEY --output json` an entry",
    ),
    (
        "",
        "db",
        "`pelton database list` lists databases; create, drop and convert stand there, too",
    ),
    (
        "",
        "dump",
        "`pelton export` writes all entries of a database, `pelton backup` all of a server",
    ),
    (
        "",
        "lease",
        "`pelton put KEY VALUE --ttl TIME` writes a value that expires",
    ),
    ("", "compact", "the server does it by itself"),
    (
        "database",
        "info",
        "`pelton database list` prints kind, durability and figures of each",
    ),
    (
        "database",
        "show",
        "`pelton database list` prints kind, durability and figures of each",
    ),
    (
        "database",
        "stat",
        "`pelton database list` prints kind, durability and figures of each",
    ),
    (
        "database",
        "remove",
        "`pelton database drop NAME` removes a database",
    ),
    ("config", "get", "`pelton config print` prints all settings"),
    (
        "config",
        "show",
        "`pelton config print` prints all settings",
    ),
    (
        "config",
        "list",
        "`pelton config print` prints all settings",
    ),
    ("", "version", "`pelton --version` prints the version"),
    ("", "bench", "`pelton load` loads a server and measures it"),
    (
        "",
        "cp",
        "`pelton upload FILE` stores a file, `pelton download NAME` fetches it",
    ),
    (
        "database",
        "delete",
        "`pelton database drop NAME` removes a database",
    ),
    (
        "database",
        "rm",
        "`pelton database drop NAME` removes a database",
    ),
    (
        "role",
        "create",
        "`pelton role set NAME --rights RIGHTS` makes a role, or changes one",
    ),
    (
        "role",
        "update",
        "`pelton role set NAME --rights RIGHTS` makes a role, or changes one",
    ),
    ("role", "delete", "`pelton role drop NAME` removes a role"),
    ("role", "rm", "`pelton role drop NAME` removes a role"),
    ("role", "show", "`pelton role list` shows all roles"),
    (
        "token",
        "delete",
        "`pelton token revoke NAME` takes a token back",
    ),
    (
        "token",
        "rm",
        "`pelton token revoke NAME` takes a token back",
    ),
    (
        "token",
        "drop",
        "`pelton token revoke NAME` takes a token back",
    ),
    ("token", "show", "`pelton token list` shows all tokens"),
    (
        "token",
        "update",
        "the rights of a token stay as they are: give it a role, which `pelton role set` changes",
    ),
    (
        "token",
        "set",
        "the rights of a token stay as they are: give it a role, which `pelton role set` changes",
    ),
    ("", "tokens", "`pelton token list` shows all tokens"),
    ("", "roles", "`pelton role list` shows all roles"),
    ("blob", "rm", "`pelton blob delete NAME` removes a blob"),
    (
        "blob",
        "upload",
        "`pelton upload FILE` stores a file as a blob",
    ),
    ("blob", "download", "`pelton download NAME` fetches a blob"),
    ("blob", "get", "`pelton download NAME` fetches a blob"),
    (
        "blob",
        "cat",
        "`pelton download NAME --to -` writes a blob to standard output",
    ),
    (
        "blob",
        "put",
        "`pelton upload FILE` stores a file as a blob",
    ),
    (
        "database",
        "rename",
        "a database keeps its name; `pelton export` and `pelton import` copy its entries",
    ),
    (
        "",
        "subscribe",
        "`pelton watch` prints what is changed in a database",
    ),
    (
        "",
        "metrics",
        "`pelton serve --metrics-listen PORT` serves metrics for Prometheus",
    ),
    (
        "",
        "shell",
        "there is no interactive shell; each command does one thing: `pelton --help` lists them",
    ),
];

/// Flags of other tools. The first word is the command, if it means something only there.
pub(super) const FLAGS: &[(&str, &str, &str)] = &[
    ("", "--json", "`--output json` prints JSON"),
    ("", "-o", "`--output json` prints JSON"),
    (
        "serve",
        "--port",
        "`--listen HOST:PORT` says where to listen",
    ),
    ("serve", "-p", "`--listen HOST:PORT` says where to listen"),
    (
        "serve",
        "--tls-client-ca",
        "`--client-ca FILE` asks clients for certificates that these have signed",
    ),
    (
        "serve",
        "--tls-ca",
        "`--client-ca FILE` asks clients for certificates that these have signed",
    ),
    (
        "",
        "--tls-client-ca",
        "`--tls-ca FILE` says whose certificates a server may show",
    ),
    (
        "serve",
        "--host",
        "`--listen HOST:PORT` says where to listen",
    ),
    (
        "",
        "--host",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "-h",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "-p",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--port",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--server",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--endpoint",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "",
        "--endpoints",
        "`--address HOST:PORT` says where the server listens",
    ),
    (
        "load",
        "-c",
        "`--connections N` and `--in-flight N` say how many calls go on at once",
    ),
    (
        "load",
        "--concurrency",
        "`--connections N` and `--in-flight N` say how many calls go on at once",
    ),
    (
        "load",
        "--requests",
        "`--calls N` says how many calls are made",
    ),
    ("load", "-n", "`--calls N` says how many calls are made"),
    ("serve", "--dir", "`--data DIR` names the data folder"),
    ("serve", "--folder", "`--data DIR` names the data folder"),
    ("serve", "--directory", "`--data DIR` names the data folder"),
    ("serve", "--data-dir", "`--data DIR` names the data folder"),
    ("serve", "-d", "`--data DIR` names the data folder"),
    (
        "database drop",
        "--yes",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "-y",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "--force",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "database drop",
        "-f",
        "`--with-content` removes a database with what is in it",
    ),
    (
        "put",
        "--value",
        "the value stands behind the key: `pelton put KEY VALUE`",
    ),
    (
        "append",
        "--value",
        "the value stands behind the key: `pelton append KEY VALUE`",
    ),
    (
        "put",
        "--ex",
        "`--ttl TIME` lets the entry expire: 500ms, 10s, 5m, 1h, 30d",
    ),
    (
        "put",
        "--px",
        "`--ttl TIME` lets the entry expire: 500ms, 10s, 5m, 1h, 30d",
    ),
    (
        "put",
        "--expire",
        "`--ttl TIME` lets the entry expire: 500ms, 10s, 5m, 1h, 30d",
    ),
    ("put", "--nx", "`--if-absent` writes only what is not there"),
    ("put", "--xx", "`--if-present` writes only what is there"),
    (
        "get",
        "--prefix",
        "`pelton scan --prefix TEXT` prints the entries whose keys begin with it",
    ),
    (
        "scan",
        "--match",
        "`--prefix TEXT` takes the keys that begin with it; there are no wildcards",
    ),
    (
        "scan",
        "--pattern",
        "`--prefix TEXT` takes the keys that begin with it; there are no wildcards",
    ),
    (
        "watch",
        "--match",
        "`--prefix TEXT` takes the keys that begin with it; there are no wildcards",
    ),
    (
        "watch",
        "--since",
        "`--from HISTORY:SEQUENCE` goes on behind a point that an earlier run has printed",
    ),
    ("watch", "--count", "`--limit N` ends after so many commits"),
    ("scan", "--count", "`--limit N` ends after so many entries"),
    (
        "ls",
        "--match",
        "`--prefix TEXT` takes the keys that begin with it; there are no wildcards",
    ),
    (
        "ls",
        "--pattern",
        "`--prefix TEXT` takes the keys that begin with it; there are no wildcards",
    ),
    ("ls", "--count", "`--limit N` ends after so many keys"),
    (
        "incr",
        "--by",
        "the number stands behind the key: `pelton incr KEY 3`",
    ),
    (
        "serve",
        "--bind",
        "`--listen HOST:PORT` says where to listen",
    ),
    (
        "serve",
        "--addr",
        "`--listen HOST:PORT` says where to listen",
    ),
    (
        "serve",
        "--address",
        "`--listen HOST:PORT` says where to listen",
    ),
    ("", "-n", "`--database NAME` names a database"),
    ("", "-d", "`--database NAME` names a database"),
    ("", "--db", "`--database NAME` names a database"),
    ("load", "--rps", "`--rate N` begins so many calls a second"),
    ("load", "--qps", "`--rate N` begins so many calls a second"),
    (
        "load",
        "--header",
        "`--metadata NAME=VALUE` sends metadata with each call",
    ),
];
