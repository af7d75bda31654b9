use walpost_local::Redis;

#[test]
#[ignore = "deep: needs Redis"]
fn keys_stay_over_a_stop_and_a_start() {
    let redis = Redis::start_new().unwrap();
    assert_eq!(redis.ask("SET greeting hello").unwrap(), "+OK\r\n");
    redis.stop().unwrap();
    assert!(redis.ask("PING").is_err());
    redis.start().unwrap();
    assert_eq!(redis.ask("GET greeting").unwrap(), "$5\r\nhello\r\n");
}
