use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

/// A certificate authority of a test, made anew each time, and what it signs, as
/// files that go with it. Keys are brought into other forms by `openssl`, which
/// is what people do as well.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    count: AtomicU32,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate: PEM.
    pub certificate: PathBuf,
    /// Its key: PKCS #8 in PEM.
    pub key: PathBuf,
}

/// The algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA of 2,048 bits.
    Rsa,
    /// An elliptic curve, P-256.
    Ec,
}

/// How a file holds a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm<'a> {
    /// PKCS #8 in DER, as Java has it.
    Pkcs8Der,
    /// PKCS #1 of an RSA key, SEC 1 of one on a curve, in PEM.
    TraditionalPem,
    /// The same in DER.
    TraditionalDer,
    /// PKCS #8 in PEM, encrypted by this password with AES.
    EncryptedPem(&'a str),
    /// The same in DER.
    EncryptedDer(&'a str),
    /// PKCS #8 in PEM, encrypted by this password as PKCS #5 had it in 1993.
    OldCipher(&'a str),
    /// OpenSSL's own encrypted PEM (`Proc-Type: 4,ENCRYPTED`).
    OwnWay(&'a str),
}

impl Authority {
    /// One of its own.
    ///
    /// # Panics
    /// When its files cannot be written.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let key = KeyPair::generate().expect("a key of the usual kind");
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("parameters of an authority");
        write(&folder.path().join("authority.pem"), certificate.pem());
        Self { folder, issuer: Issuer::new(params, key), count: AtomicU32::new(0) }
    }

    /// Its certificate: PEM.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Signs a certificate for these host names and addresses.
    ///
    /// # Panics
    /// When it cannot.
    pub fn server(&self, names: &[&str]) -> Identity {
        self.sign(params("server", names), &generate())
    }

    /// The same, of 2020 and out of date since 2021.
    ///
    /// # Panics
    /// When it cannot.
    pub fn expired_server(&self, names: &[&str]) -> Identity {
        let mut params = params("server", names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params, &generate())
    }

    /// Signs a certificate whose subject alone names the host, as before 2000.
    ///
    /// # Panics
    /// When it cannot.
    pub fn server_by_subject(&self, name: &str) -> Identity {
        self.sign(params(name, &[]), &generate())
    }

    /// Signs the certificate of a client of this name.
    ///
    /// # Panics
    /// When it cannot.
    pub fn client(&self, name: &str, algorithm: Algorithm) -> Identity {
        match algorithm {
            Algorithm::Ec => self.sign(params(name, &[]), &generate()),
            Algorithm::Rsa => {
                let path = self.next("rsa.key");
                let bits = "rsa_keygen_bits:2048";
                openssl(["genpkey", "-algorithm", "RSA", "-pkeyopt", bits, "-out"], [&path]);
                let text = fs::read_to_string(&path).expect("what openssl has written");
                self.sign(params(name, &[]), &KeyPair::from_pem(&text).expect("an RSA key"))
            }
        }
    }

    /// A server that signs its own certificate for this host, as
    /// `openssl req -x509` makes it: without a list of names.
    ///
    /// # Panics
    /// When it cannot.
    pub fn self_signed(&self, host: &str) -> Identity {
        let identity = Identity { certificate: self.next("self.pem"), key: self.next("self.key") };
        let subject = format!("/CN={host}");
        openssl(
            ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &subject],
            [OsStr::new("-out"), identity.certificate.as_os_str()]
                .into_iter()
                .chain([OsStr::new("-keyout"), identity.key.as_os_str()]),
        );
        identity
    }

    fn sign(&self, params: CertificateParams, key: &KeyPair) -> Identity {
        let certificate = params.signed_by(key, &self.issuer).expect("parameters of a leaf");
        let identity = Identity { certificate: self.next("pem"), key: self.next("key") };
        write(&identity.certificate, certificate.pem());
        write(&identity.key, key.serialize_pem());
        identity
    }

    fn next(&self, end: &str) -> PathBuf {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("{number}.{end}"))
    }
}

impl Identity {
    /// Its key in another file, in this form.
    ///
    /// # Panics
    /// When `openssl` is not there, or fails.
    pub fn key_as(&self, form: KeyForm<'_>) -> PathBuf {
        let (end, args, password): (&str, &[&str], Option<&str>) = match form {
            KeyForm::Pkcs8Der => ("pk8", &["pkcs8", "-topk8", "-nocrypt", "-outform", "DER"], None),
            KeyForm::TraditionalPem => ("old", &["pkey", "-traditional"], None),
            KeyForm::TraditionalDer => {
                ("old.der", &["pkey", "-traditional", "-outform", "DER"], None)
            }
            KeyForm::EncryptedPem(password) => {
                ("aes", &["pkcs8", "-topk8", "-v2", "aes256"], Some(password))
            }
            KeyForm::EncryptedDer(password) => {
                let args = &["pkcs8", "-topk8", "-v2", "aes256", "-outform", "DER"];
                ("aes.der", args, Some(password))
            }
            KeyForm::OldCipher(password) => {
                ("des", &["pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES"], Some(password))
            }
            KeyForm::OwnWay(password) => {
                ("own", &["pkey", "-traditional", "-aes256"], Some(password))
            }
        };
        let out = self.key.with_extension(end);
        let password = password.map(|password| format!("pass:{password}"));
        let password = password.iter().flat_map(|password| ["-passout", password]);
        let args = args.iter().copied().chain(password).map(OsStr::new);
        let files = [OsStr::new("-in"), self.key.as_os_str(), OsStr::new("-out"), out.as_os_str()];
        openssl(args, files);
        out
    }

    /// Key and certificate in one PEM file, as a broker's key store.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn bundle(&self) -> PathBuf {
        let out = self.key.with_extension("bundle.pem");
        let part = |path: &Path| fs::read_to_string(path).expect("a file of this identity");
        write(&out, part(&self.key) + &part(&self.certificate));
        out
    }

    /// Both in a PKCS #12 store with this password.
    ///
    /// # Panics
    /// When `openssl` is not there, or fails.
    pub fn pkcs12(&self, password: &str) -> PathBuf {
        let out = self.key.with_extension("p12");
        let password = format!("pass:{password}");
        let (out_os, key) = (out.as_os_str(), self.key.as_os_str());
        let files = [OsStr::new("-inkey"), key, OsStr::new("-in"), self.certificate.as_os_str()];
        let args = ["pkcs12", "-export", "-passout", &password, "-out"].map(OsStr::new);
        openssl(args.into_iter().chain([out_os]), files);
        out
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names of hosts");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn generate() -> KeyPair {
    KeyPair::generate().expect("a key of the usual kind")
}

fn write(path: &Path, text: String) {
    fs::write(path, text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

fn openssl(
    args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    more: impl IntoIterator<Item = impl AsRef<OsStr>>,
) {
    let mut command = Command::new("openssl");
    let output = command.args(args).args(more).output().unwrap_or_else(|error| {
        panic!("the tests need the program openssl (Debian: openssl) to write keys: {error}")
    });
    assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
}
