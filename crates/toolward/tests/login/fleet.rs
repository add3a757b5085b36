//! Many processes and calls on one login that expires.

use serde_json::json;
use toolward_testkit::wait::eventually;

use crate::world::World;

const PROCESSES: usize = 20;
const CALLS: usize = 10;

#[test]
fn twenty_processes_and_two_hundred_calls_refresh_one_grant_one_at_a_time() {
    let world = World::with(json!({"token_delay": 20}), json!({}));
    world.logged_in();
    let mut gateways: Vec<_> = (0..PROCESSES).map(|_| world.gateway()).collect();
    for gateway in &mut gateways {
        assert_eq!(gateway.whoami()["subject"], "alice");
    }
    assert_eq!(world.tokens.counts().refreshes, 0);
    for round in 1..=3 {
        world.tokens.expire_access_tokens();
        for gateway in &mut gateways {
            for _ in 0..CALLS {
                gateway.send("tools/call", &json!({"name": "it__whoami", "arguments": {}}));
            }
        }
        for gateway in &mut gateways {
            for _ in 0..CALLS {
                let response = gateway.response();
                assert!(response["result"]["content"].is_array(), "{round}: {response}");
            }
        }
        let counts = world.tokens.counts();
        assert_eq!((counts.overlapping, counts.reused), (0, 0), "{round}: {counts:?}");
        assert_eq!(counts.refreshes, round, "one refresh serves all: {counts:?}");
        assert_eq!(counts.live_grants, 1);
        // A process refreshes a rejected token at most every ten seconds; the rounds are independent of that.
        if round < 3 {
            gateways = (0..PROCESSES).map(|_| world.gateway()).collect();
            for gateway in &mut gateways {
                assert_eq!(gateway.whoami()["subject"], "alice");
            }
        }
    }
    eventually("every refresh is recorded", || {
        world.records().iter().filter(|record| record["what"] == "refresh").count() == 3
    });
    world.files_have_no_secret();
}
