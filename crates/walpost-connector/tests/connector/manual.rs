use std::{env, fs};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-debezium.md");
const BEGIN: &str =
    "<!-- The table: cargo test -p walpost-connector writes it, with WALPOST_WRITE_DOCS=1. -->\n";
const END: &str = "<!-- End of the table. -->\n";

#[test]
fn the_page_has_the_table_of_the_code() {
    let page = fs::read_to_string(PATH).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the mark before the table");
    let (table, behind) = rest.split_once(END).expect("the mark behind the table");
    let expected = walpost_connector::manual();
    if env::var_os("WALPOST_WRITE_DOCS").is_some() {
        return fs::write(PATH, format!("{before}{BEGIN}{expected}\n{END}{behind}")).unwrap();
    }
    assert!(table.trim() == expected.trim(), "run this test once with WALPOST_WRITE_DOCS=1");
}
