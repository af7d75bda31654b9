use std::{error::Error, fs};

use walpost_connector::{
    Allowed, MAX_BYTES, Properties, ProviderError, Providers, Reference, ResolveError, Unknown,
    judge,
};
use walpost_router::Pattern;

fn resolved(text: &str, providers: &mut Providers) -> Result<String, ResolveError<ProviderError>> {
    let given = Properties::from_pairs([("database.password", text)]);
    let resolved = given.resolve(|asked| providers.lookup(asked))?;
    Ok(resolved.get("database.password").expect("it was given").to_owned())
}

fn fails(text: &str, providers: &mut Providers) -> String {
    let error = resolved(text, providers).expect_err(text);
    assert_eq!(error.property(), "database.password");
    error.source().expect("why").to_string()
}

#[test]
fn files_folders_and_variables_are_read_as_far_as_they_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::write(path.join("pg.properties"), "# ä\nuser=app\npassword : h\\u00fcnter2 ä\nuser=last\n")
        .unwrap();
    fs::write(path.join("password"), "hunter2\n").unwrap();
    let at = path.display().to_string();
    let mut providers = Providers::new(Allowed::nothing().with_path(&path));
    for (text, expected) in [
        (format!("${{file:{at}/pg.properties:password}}"), "hünter2 ä"),
        (format!("x${{file:{at}/pg.properties:user}}"), "xlast"),
        (format!("${{dir:{at}:password}}"), "hunter2\n"),
        (format!("${{directory:{at}:password}}"), "hunter2\n"),
        ("${no-placeholder}".to_owned(), "${no-placeholder}"),
    ] {
        assert_eq!(resolved(&text, &mut providers).unwrap(), expected, "{text}");
    }
    assert!(
        fails(&format!("${{file:{at}/pg.properties:pw}}"), &mut providers)
            .contains("has no property pw")
    );
    assert!(fails(&format!("${{file:{at}/none:pw}}"), &mut providers).contains("cannot read"));
    assert!(fails(&format!("${{dir:{at}:../x}}"), &mut providers).contains("written ${dir:"));
    assert!(fails("${env:PATH}", &mut providers).contains("PATH may not be read"));
    assert!(fails("${vault:a:b}", &mut providers).contains("no provider \"vault\""));
    assert!(fails("${file:password}", &mut providers).contains("written ${file:"));
}

#[test]
fn what_is_outside_of_the_allowed_paths_is_not_even_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (inside, outside) = (root.join("in"), root.join("out"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("pw"), "hunter2").unwrap();
    fs::write(inside.join("pw"), "right").unwrap();
    std::os::unix::fs::symlink(outside.join("pw"), inside.join("link")).unwrap();
    std::os::unix::fs::symlink(inside.join("pw"), inside.join("own")).unwrap();
    let mut providers = Providers::new(Allowed::nothing().with_path(&inside));
    let at = |path: &std::path::Path, file: &str| format!("${{dir:{}:{file}}}", path.display());
    assert_eq!(resolved(&at(&inside, "own"), &mut providers).unwrap(), "right");
    for text in [
        at(&outside, "pw"),
        at(&outside, "there-is-none"),
        at(&inside.join("../out"), "pw"),
        at(&inside, "link"),
        at(std::path::Path::new("in"), "pw"),
        at(&root.join("inside"), "pw"),
    ] {
        let said = fails(&text, &mut providers);
        assert!(said.contains("outside of the paths that may be read"), "{text}: {said}");
    }
}

#[test]
fn a_file_that_is_too_large_or_no_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::write(path.join("large"), vec![b'a'; MAX_BYTES + 1]).unwrap();
    fs::write(path.join("bytes"), b"\xff\xfe").unwrap();
    fs::create_dir(path.join("folder")).unwrap();
    let mut providers = Providers::new(Allowed::everything());
    let at = path.display();
    assert!(fails(&format!("${{dir:{at}:large}}"), &mut providers).contains("no UTF-8 of at most"));
    assert!(fails(&format!("${{dir:{at}:bytes}}"), &mut providers).contains("no UTF-8 of at most"));
    assert!(fails(&format!("${{dir:{at}:folder}}"), &mut providers).contains("cannot read"));
}

#[test]
fn nothing_is_resolved_for_those_who_may_read_nothing() {
    let mut providers = Providers::new(Allowed::nothing());
    for text in ["${env:PATH}", "${file:/etc/passwd:root}", "${dir:/etc:passwd}", "${x:y}"] {
        assert!(
            fails(text, &mut providers).contains("is not resolved here; write the value itself")
        );
    }
    assert_eq!(resolved("plain", &mut providers).unwrap(), "plain");
}

#[test]
fn variables_are_read_by_their_names() {
    let mut all = Providers::new(Allowed::everything());
    let path = std::env::var("PATH").unwrap();
    assert_eq!(resolved("${env:PATH}", &mut all).unwrap(), path);
    assert!(fails("${env:WALPOST_NO_SUCH_VARIABLE}", &mut all).contains("is not set"));
    assert!(fails("${env:/a:PATH}", &mut all).contains("written ${env:VARIABLE}"));
    let mut some =
        Providers::new(Allowed::nothing().with_environment(Pattern::new("P.*").unwrap()));
    assert_eq!(resolved("${env:PATH}", &mut some).unwrap(), path);
    assert!(fails("${env:HOME}", &mut some).contains("HOME may not be read"));
}

#[test]
fn providers_of_a_worker_have_its_names_and_its_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    fs::create_dir(path.join("own")).unwrap();
    fs::write(path.join("own/a"), "password=right").unwrap();
    fs::write(path.join("b"), "password=hunter2").unwrap();
    let class = |name: &str| format!("org.apache.kafka.common.config.provider.{name}");
    let at = path.display().to_string();
    let own = format!("{at}/own");
    let (file, variables) = (class("FileConfigProvider"), class("EnvVarConfigProvider"));
    let worker = Properties::from_pairs([
        ("config.providers", "secrets, vars"),
        ("config.providers.secrets.class", &file),
        ("config.providers.secrets.param.allowed.paths", &own),
        ("config.providers.vars.class", &variables),
        ("config.providers.vars.param.allowlist.pattern", "PATH"),
    ]);
    let mut providers = Providers::new(Allowed::everything()).with_worker(&worker).unwrap();
    assert_eq!(
        resolved(&format!("${{secrets:{at}/own/a:password}}"), &mut providers).unwrap(),
        "right"
    );
    assert!(fails(&format!("${{secrets:{at}/b:password}}"), &mut providers).contains("outside"));
    assert!(fails("${vars:HOME}", &mut providers).contains("HOME may not be read"));
    assert!(resolved("${vars:PATH}", &mut providers).is_ok());
    let wrong = Properties::from_pairs([
        ("config.providers", "vault"),
        ("config.providers.vault.class", "com.example.VaultConfigProvider"),
    ]);
    let error = Providers::new(Allowed::everything()).with_worker(&wrong).unwrap_err();
    assert!(error.to_string().contains("config.providers.vault.class is com.example"), "{error}");
}

#[test]
fn a_value_from_elsewhere_shows_in_no_verdict_and_no_error() {
    let lookup = |_: Reference<'_>| Ok::<_, std::convert::Infallible>("hunter2(".to_owned());
    for name in [
        "table.include.list",
        "transforms.outbox.route.topic.regex",
        "transforms.outbox.table.fields.additional.placement",
        "snapshot.mode",
        "database.port",
        "slot.name",
        "no.such.property",
        "transforms.outbox.route.topic.replacement",
        "value.converter",
        "transforms.outbox.type",
    ] {
        let given = super::with(&[(name, "a${x:y}")]);
        let judgement = judge(&given.resolve(lookup).unwrap(), None, Unknown::Refuse);
        let shown = format!("{:?}", judgement.verdicts);
        assert!(!shown.contains("hunter2"), "{name}: {shown}");
        if let Err(refused) = judgement.into_connector() {
            assert!(!refused.to_string().contains("hunter2"), "{name}: {refused}");
        }
    }
}

#[test]
fn a_file_is_read_once_for_all_of_its_properties() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("pg.properties");
    fs::write(&path, "user=app\npassword=hunter2\n").unwrap();
    let mut providers = Providers::new(Allowed::everything());
    let at = path.display();
    assert_eq!(resolved(&format!("${{file:{at}:user}}"), &mut providers).unwrap(), "app");
    fs::write(&path, "user=other\npassword=other\n").unwrap();
    let again = resolved(&format!("${{file:{at}:password}}"), &mut providers).unwrap();
    assert_eq!(again, "hunter2", "both are of one reading");
    assert!(!format!("{providers:?}").contains("hunter2"));
}
