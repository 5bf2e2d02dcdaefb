//! The server's process, held by a command.

use crate::server::Rules;
use crate::tls;
use crate::trouble::Trouble;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Where Debian and others have nginx.
const NGINX: &str = "/usr/sbin/nginx";
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which server serves.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum ServerKind {
    /// The one of this program
    #[default]
    Own,
    /// nginx, if it is at /usr/sbin/nginx
    Nginx,
}

/// A running server. Ended when dropped.
#[derive(Debug)]
pub(crate) struct Site {
    child: Child,
    talk: Option<(ChildStdin, BufReader<ChildStdout>)>,
    /// The address that clients connect to.
    pub(crate) address: String,
    /// The port that clients connect to.
    pub(crate) port: u16,
    /// What clients trust, if TLS is spoken.
    pub(crate) authority: Option<PathBuf>,
}

/// What a server counted since it was last asked.
#[derive(Clone, Debug)]
pub(crate) struct Counts(pub(crate) Value);

impl Counts {
    /// A count by its name; 0 if it is not there.
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }
}

impl Site {
    /// Starts our own server, in a network namespace if one is named.
    ///
    /// # Errors
    /// When it does not start.
    pub(crate) fn start(rules: &Rules, namespace: Option<&str>) -> Result<Self, Trouble> {
        let program = std::env::current_exe().map_err(|e| Trouble::failed("find this program", &e))?;
        let mut command = match namespace {
            None => Command::new(program),
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        };
        command.arg("serve").args(words(rules));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| Trouble::failed("start the server", &e))?;
        let pipes = child.stdin.take().zip(child.stdout.take().map(BufReader::new));
        let mut site = Self {
            child,
            talk: pipes,
            address: rules.address.map_or_else(|| "127.0.0.1".to_owned(), |a| a.to_string()),
            port: 0,
            authority: rules.identity.as_ref().map(|folder| folder.join(tls::AUTHORITY)),
        };
        let port = site.listen()?["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        site.port = port.ok_or_else(|| Trouble::new("the server did not start"))?;
        Ok(site)
    }

    /// Starts nginx on the files below `root`.
    ///
    /// # Errors
    /// When it is not there or does not start.
    pub(crate) fn nginx(root: &Path, identity: Option<&Path>) -> Result<Self, Trouble> {
        if !Path::new(NGINX).exists() {
            return Err(Trouble::new(format!("there is no {NGINX}; leave --server out to use our own")));
        }
        let failed = |e| Trouble::failed("start nginx", &e);
        let home = root.join(".nginx");
        fs::create_dir_all(&home).map_err(failed)?;
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr()).map_err(failed)?;
        let config = home.join("nginx.conf");
        fs::write(&config, nginx_configuration(&home, root, free.port(), identity)).map_err(failed)?;
        let child = Command::new(NGINX)
            .args(["-p".as_ref(), home.as_os_str(), "-c".as_ref(), config.as_os_str()])
            .args(["-e".as_ref(), home.join("error.log").as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let authority = identity.map(|folder| folder.join(tls::AUTHORITY));
        let site = Self { child, talk: None, address: "127.0.0.1".into(), port: free.port(), authority };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(free).is_err() {
            if Instant::now() >= until {
                return Err(Trouble::new("nginx does not listen"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(site)
    }

    /// The URL of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}:{}/{name}", self.address, self.port)
    }

    /// What was served since this was last asked; `None` of a server that does not tell.
    ///
    /// # Errors
    /// When the server has ended.
    pub(crate) fn counts(&mut self) -> Result<Option<Counts>, Trouble> {
        let Some((input, _)) = &mut self.talk else { return Ok(None) };
        input.write_all(b"report\n").map_err(|e| Trouble::failed("ask the server", &e))?;
        self.listen().map(|value| Some(Counts(value)))
    }

    fn listen(&mut self) -> Result<Value, Trouble> {
        let Some((_, output)) = &mut self.talk else { return Ok(Value::Null) };
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| Trouble::failed("hear from the server", &e))?;
        serde_json::from_str(&line).map_err(|_| Trouble::new("the server has ended"))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Ours ends by itself when its input does; it may wait for nothing that matters.
        self.talk = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The rules as arguments of the hidden command.
fn words(rules: &Rules) -> Vec<String> {
    let mut words = vec!["--root".to_owned(), rules.root.display().to_string()];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [name.to_owned(), value]));
    };
    option("--address", rules.address.map(|a| a.to_string()));
    option("--identity", rules.identity.as_ref().map(|p| p.display().to_string()));
    option("--rate", rules.rate.map(|n| n.to_string()));
    for (path, rate) in &rules.path_rate {
        option("--path-rate", Some(format!("{path}={rate}")));
    }
    option("--crawl-every", rules.crawl_every.map(|n| n.to_string()));
    option("--crawl-rate", rules.crawl_every.map(|_| rules.crawl_rate.to_string()));
    option("--most", rules.most.map(|n| n.to_string()));
    option("--cut-after", rules.cut_after.map(|n| n.to_string()));
    option("--silent-tail", rules.silent_tail.map(|n| n.to_string()));
    option("--round-trip-ms", rules.round_trip_ms.map(|n| n.to_string()));
    if rules.watch {
        words.push("--watch".to_owned());
    }
    words
}

/// One process (no master), so that killing it kills all of it.
fn nginx_configuration(home: &Path, root: &Path, port: u16, identity: Option<&Path>) -> String {
    let (tls, certificate) = identity.map_or((String::new(), String::new()), |folder| {
        let folder = folder.display();
        let files = format!(
            "ssl_certificate \"{folder}/{}\"; ssl_certificate_key \"{folder}/{}\";",
            tls::CHAIN,
            tls::KEY
        );
        (" ssl".to_owned(), files)
    });
    let (home, root) = (home.display(), root.display());
    format!(
        "daemon off;\nmaster_process off;\npid \"{home}/nginx.pid\";\nerror_log \"{home}/error.log\" warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_requests 100000;\n\
         default_type application/octet-stream;\n\
         client_body_temp_path \"{home}/body\";\nproxy_temp_path \"{home}/proxy\";\n\
         fastcgi_temp_path \"{home}/fastcgi\";\nuwsgi_temp_path \"{home}/uwsgi\";\n\
         scgi_temp_path \"{home}/scgi\";\n\
         server {{ listen 127.0.0.1:{port}{tls}; root \"{root}\"; {certificate} }}\n}}\n"
    )
}
