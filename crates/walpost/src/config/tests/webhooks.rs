use walpost_webhook::{OnHeadFailure, Order, Ports};

use super::load;

/// Destinations that differ from what holds for all.
const DESTINATIONS: &str = r#"
[sink]
kind = "webhook"
[webhook]
destination_column = "send_to"
[destination]
concurrency = 5
[destination.logistics]
url = "https://logistics.example/hooks/s3cr3t"
events = ["invoice.*"]
headers = ["x-shop: s3cr3t"]
concurrency = 7
order = "key"
on_head_failure = "skip"
proxy = "http://egress.internal:4750"
[destination.audit]
url = "https://audit.example:8443/"
"#;

#[test]
fn a_destination_has_what_holds_for_all_and_its_own() {
    let config = load(DESTINATIONS).unwrap();
    let webhooks = config.webhooks().unwrap().unwrap();
    let of = |name: &str| webhooks.processors.iter().find(|one| one.name == name).unwrap();
    assert_eq!(webhooks.names().collect::<Vec<_>>(), ["audit", "logistics"]);
    assert_eq!((of("audit").pace.concurrency, of("logistics").pace.concurrency), (5, 7));
    assert_eq!(of("logistics").destination.headers["x-shop"], "s3cr3t");
    assert_eq!((of("audit").order, of("logistics").order), (Order::None, Order::Key));
    assert_eq!(of("logistics").on_head_failure, OnHeadFailure::Skip);
    let proxy = of("logistics").client.proxy.as_ref().unwrap();
    assert_eq!(proxy.to_string(), "http://egress.internal:4750");
    assert_eq!(of("audit").client.ports, Some(Ports::only([80, 443, 8443])));
    assert_eq!(of("audit").client.proxy, None);
    assert_eq!(of("audit").policy.schedule, walpost_webhook::Schedule::erp());
    let router = config.router().unwrap();
    assert_eq!(
        router.additional_placement.as_deref(),
        Some("type:header:webhook-type,send_to:header:webhook-destination")
    );
    assert_eq!(router.headers_column, None);
    let printed = config.effective();
    assert!(printed.contains("[destination.logistics]\n"), "{printed}");
    assert!(printed.contains("url = \"https://logistics.example/***\"  # "), "{printed}");
    assert!(!printed.contains("s3cr3t"), "{printed}");
    let kafka = load("").unwrap();
    assert!(kafka.webhooks().unwrap().is_none());
}

#[test]
fn what_would_permit_a_private_address_is_told_and_a_body_is_one_of_two() {
    let of = |more: &str| {
        let text = format!("[sink]\nkind = \"webhook\"\n[destination.a]\n{more}");
        load(&text).and_then(|config| config.webhooks()).map(drop).unwrap_err().to_string()
    };
    let private = of("url = \"https://10.0.0.1/\"");
    assert!(private.contains("allow_private_networks = true permits it"), "{private}");
    let metadata = of("url = \"https://169.254.169.254/\"");
    assert!(!metadata.contains("allow_private_networks"), "{metadata}");
    let body = of("url = \"https://a.example/\"\nbody = \"cloudevents\"");
    assert!(body.contains("line 5: destination.a.body"), "{body}");
}

#[test]
fn what_is_wrong_with_a_destination_is_told_with_its_place() {
    let webhook = "[sink]\nkind = \"webhook\"\n";
    for (more, expected) in [
        ("", "there is no destination"),
        ("[destination.a]\n", "line 3: [destination.a] is empty"),
        ("[destination.a]\nurll = \"x\"", "did you mean destination.a.url?"),
        ("[destination.a]\nurl = 5", "line 4: destination.a.url is 5"),
        ("[destination.\"a b\"]\nurl = \"x\"", "is no name of a destination"),
        ("[destination.a]\nmethod = \"PUT\"", "destination.a.url is not set"),
        ("[destination.a]\nurl = \"http://example.com/\"", "allow_http = true"),
        ("[destination.a]\nurl = \"https://127.0.0.1/\"", "line 4: destination.a.url"),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nkey = \"row\"",
            "line 5: destination.a.key",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\norder = \"fifo\"",
            "line 5: destination.a.order",
        ),
        (
            "[destination.a]\nurl = \"https://a.example:8443/\"\nallow_ports = [\"443\"]",
            "line 5: destination.a.allow_ports has not the port of the url, 8443",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nallow_ports = [\"https\"]",
            "line 5: destination.a.allow_ports has \"https\", which is no port",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nproxy = \"socks5://b:1\"",
            "line 5: destination.a.proxy",
        ),
        (
            "[destination]\nlease_ms = 1000\n[destination.a]\nurl = \"https://a.example/\"",
            "line 4: destination.a.lease_ms cannot be used",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nretry_waits = [\"soon\"]",
            "line 5: destination.a.retry_waits has \"soon\"",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nrate_burst = 3",
            "line 5: destination.a.rate_burst is set",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\nbreaker_wait_s = 400",
            "line 5: destination.a.breaker_wait_s cannot be used",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\n[webhook]\nalert_destination = \"b\"",
            "there is no [destination.b]",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\n[pipeline]\nmark_published = true",
            "pipeline.mark_published is true",
        ),
        (
            "[destination.a]\nurl = \"https://a.example/\"\n[router]\nheaders_column = \"h\"",
            "router.headers_column is set",
        ),
    ] {
        let wrong = load(&format!("{webhook}{more}")).and_then(|config| config.webhooks());
        let said = wrong.map(drop).unwrap_err().to_string();
        assert!(said.contains(expected), "{more}: {said}");
        assert!(!said.contains("127.0.0.1/"), "{said}");
    }
    let column = "[webhook]\nkey_column = \"a,b\"\n";
    let said = load(&DESTINATIONS.replace("[webhook]\n", column));
    let said = said.and_then(|config| config.router()).map(drop).unwrap_err().to_string();
    assert!(said.contains("\"a,b\""), "{said}");
}
