//! A real web server beside the Origin, where there is one.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Where distributions put it.
pub const BINARY: &str = "/usr/sbin/nginx";

/// How long it may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ports tried, because another process can take one between our choosing and its binding.
const TRIES: usize = 5;

/// An nginx of our own, with its own configuration, in the foreground. Killed when dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    address: SocketAddr,
    // Its configuration and logs; removed after the process has ended.
    _home: TempDir,
}

impl Nginx {
    /// Serves the files below `root` on 127.0.0.1. `None` where there is no nginx at [`BINARY`], or it does not
    /// start.
    pub fn start(root: &Path) -> Option<Self> {
        Path::new(BINARY).exists().then(|| Self::start_binary(Path::new(BINARY), root).ok()).flatten()
    }

    /// The same with another binary.
    ///
    /// # Errors
    /// When it cannot be started, or does not listen within 10 s.
    pub fn start_binary(binary: &Path, root: &Path) -> io::Result<Self> {
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for _ in 0..TRIES {
            match Self::try_start(binary, root) {
                Ok(nginx) => return Ok(nginx),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path that begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn try_start(binary: &Path, root: &Path) -> io::Result<Self> {
        let home = tempfile::Builder::new().prefix("testkit-nginx-").tempdir()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = home.path().join("nginx.conf");
        fs::write(&config, configuration(home.path(), &root.canonicalize()?, address))?;
        let child = Command::new(binary)
            .arg("-p")
            .arg(home.path())
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(home.path().join("error.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut nginx = Self { child, address, _home: home };
        nginx.wait_until_it_listens()?;
        Ok(nginx)
    }

    fn wait_until_it_listens(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("nginx ended: {status}")));
            }
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // It tells nobody when it listens.
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One process (no master), so that killing it kills all of it.
fn configuration(home: &Path, root: &Path, address: SocketAddr) -> String {
    let home = home.display();
    format!(
        "daemon off;\nmaster_process off;\npid \"{home}/nginx.pid\";\nerror_log \"{home}/error.log\" warn;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n\
         access_log off;\nsendfile on;\ntcp_nopush on;\nkeepalive_requests 100000;\n\
         default_type application/octet-stream;\n\
         client_body_temp_path \"{home}/body\";\nproxy_temp_path \"{home}/proxy\";\n\
         fastcgi_temp_path \"{home}/fastcgi\";\nuwsgi_temp_path \"{home}/uwsgi\";\n\
         scgi_temp_path \"{home}/scgi\";\n\
         server {{ listen {address}; root \"{}\"; max_ranges 16; }}\n}}\n",
        root.display()
    )
}
