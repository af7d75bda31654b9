use clap::Parser;

use super::{Line, Stand};
use crate::config::Config;

#[test]
fn a_hint_at_a_command_has_the_options_that_name_the_connector() {
    let stand = Stand::new(&[]);
    let file = stand.path("shop.json").display().to_string();
    let hints = "`walpost migrate`, `walpost migrate --set inbox`, `walpost slot recover`, \
                 `walpost slot recover --accept-deleted-rows --yes`";
    let config = stand.load().unwrap();
    let told = config.in_properties(hints);
    assert_eq!(
        told,
        format!(
            "`walpost migrate --connector {file}`, `walpost migrate --set inbox`, `walpost slot \
             recover --connector {file}`, `walpost slot recover --connector {file} \
             --accept-deleted-rows --yes`"
        )
    );
    assert_eq!(config.in_properties(&told), told, "once");
    let stand = stand.with(&["--allow-placeholders", "/a b", "--unknown", "warn"]);
    let told = stand.load().unwrap().in_properties("`walpost check`");
    let options = "--allow-placeholders '/a b' --unknown warn";
    assert_eq!(told, format!("`walpost check --connector {file} {options}`"));
    let own = Config::load(&Line::parse_from(["walpost"]).config).unwrap();
    assert_eq!(own.in_properties(hints), hints);
}

#[test]
fn a_text_about_keys_names_properties() {
    let stand = Stand::new(&[("slot.name", "mine")]).with(&["--set", "pipeline.schema=other"]);
    let config = Config::load(&stand.args()).unwrap();
    let file = stand.path("shop.json").display().to_string();
    assert_eq!(
        config.in_properties("pipeline.slot, router.event_key; pipeline.schema: set it"),
        format!(
            "slot.name ({file} line 16), transforms.outbox.table.field.event.key; \
             pipeline.schema: set it"
        )
    );
    let told =
        config.in_properties("mend the password: in the url, or the file postgres.password_file");
    assert_eq!(told, "mend database.password");
    let told = config.in_properties("mend the url, or the file that it names");
    assert!(told.starts_with("mend database.sslmode, or the file of "), "{told}");
    let told = config.in_properties("name the primary, or all hosts, in postgres.url");
    assert!(told.starts_with("name the primary, or all hosts, in database.hostname ("), "{told}");
    let lost =
        "start with initial = \"publish\", which publishes the whole table again, or \"skip\"";
    let told =
        "start with snapshot.mode = initial, which publishes the whole table again, or no_data";
    assert_eq!(config.in_properties(lost), told);
    assert_eq!(config.migrated_publication(), "walpost", "its own is of its own tables");
}
