use serde_json::json;

use super::*;

/// A client that registers, signs in and asks for tokens.
struct Visitor<'a> {
    server: &'a AuthorizationServer,
    id: String,
}

const REDIRECT: &str = "http://127.0.0.1:9/callback";
const VERIFIER: &str = "a-verifier-that-is-long-enough-for-every-server";

fn post(url: &str, form: &str) -> (u16, Value) {
    let response = client::send("POST", url, "", form).unwrap();
    (response.status, serde_json::from_str(&response.body).unwrap_or_default())
}

impl Visitor<'_> {
    fn register(server: &AuthorizationServer) -> Visitor<'_> {
        let asked = json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"]});
        let (status, client) = post(&format!("{}/register", server.issuer()), &asked.to_string());
        assert_eq!(status, 201, "{client}");
        Visitor { server, id: client["client_id"].as_str().unwrap().into() }
    }

    /// The query of the redirect.
    fn authorize(&self, more: &str) -> Form {
        let url = format!(
            "{}/authorize?response_type=code&client_id={}&redirect_uri={}&state=s&scope=openid\
             &code_challenge_method=S256&code_challenge={}{more}",
            self.server.issuer(),
            self.id,
            encoded(REDIRECT),
            signing::challenge(VERIFIER),
        );
        let to = client::get(&url, "").unwrap().location.unwrap();
        let (base, query) = to.split_once('?').unwrap();
        assert_eq!(base, REDIRECT);
        form(query)
    }

    fn token(&self, form: &str) -> (u16, Value) {
        let form = format!("client_id={}&{form}", self.id);
        post(&format!("{}/token", self.server.issuer()), &form)
    }

    fn redeem(&self, code: &str) -> (u16, Value) {
        let redirect = encoded(REDIRECT);
        self.token(&format!(
            "grant_type=authorization_code&code={code}&redirect_uri={redirect}\
             &code_verifier={VERIFIER}"
        ))
    }

    fn refresh(&self, tokens: &Value) -> (u16, Value) {
        let token = tokens["refresh_token"].as_str().unwrap();
        self.token(&format!("grant_type=refresh_token&refresh_token={token}"))
    }
}

#[test]
fn a_code_is_redeemed_once_and_a_rotated_token_revokes_the_grant() {
    let server = AuthorizationServer::start(Switches::default()).unwrap();
    let visitor = Visitor::register(&server);
    let answer = visitor.authorize("");
    assert_eq!((&*answer["state"], &*answer["iss"]), ("s", server.issuer()));
    let (status, first) = visitor.redeem(&answer["code"]);
    assert_eq!(status, 200, "{first}");
    let bearer = |tokens: &Value| format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    assert_eq!(server.valid(&bearer(&first)).unwrap().subject, "alice");
    let id = signing::claims(first["id_token"].as_str().unwrap()).unwrap();
    assert_eq!((&id["sub"], &id["aud"]), (&json!("alice"), &json!(visitor.id)));
    let (status, second) = visitor.refresh(&first);
    assert_eq!(status, 200, "{second}");
    assert_eq!(server.counts().live_grants, 1);
    let (status, refused) = visitor.refresh(&first);
    assert_eq!((status, &refused["error"]), (400, &json!("invalid_grant")));
    assert_eq!(visitor.refresh(&second).0, 400, "the whole grant is revoked");
    let counts = server.counts();
    assert_eq!((counts.refreshes, counts.reused, counts.live_grants), (1, 1, 0));
    assert!(server.valid(&bearer(&second)).is_none());
    let answer = visitor.authorize("");
    assert_eq!(visitor.redeem(&answer["code"]).0, 200);
    assert_eq!(visitor.redeem(&answer["code"]).0, 400);
    assert_eq!(server.counts().live_grants, 0, "a code that is used twice revokes its grant");
}

#[test]
fn the_protected_server_wants_a_token_and_knows_whose_it_is() {
    let server = AuthorizationServer::start(Switches::default()).unwrap();
    let protected = ProtectedServer::start(&server, ProtectedSwitches::default()).unwrap();
    let call = |token: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
            {"name": "whoami", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}});
        let request = Exchanged {
            method: "POST".into(),
            path: "/mcp".into(),
            fields: [
                ("authorization", token),
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "whoami"),
            ]
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
            body: body.to_string(),
            ..Exchanged::default()
        };
        protected.state_for_tests(&request)
    };
    assert_eq!(call("").0, 401);
    let visitor = Visitor::register(&server);
    let resource = format!("&resource={}", encoded(&protected.url()));
    let (_, tokens) = visitor.redeem(&visitor.authorize(&resource)["code"]);
    let token = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    let (status, body) = call(&token);
    assert_eq!(status, 200);
    assert!(body.contains(r#"\"subject\":\"alice\""#), "{body}");
    protected.switch(|switches| switches.reject_next_calls = 1);
    assert_eq!((call(&token).0, call(&token).0), (401, 200));
    let (_, tokens) = visitor.redeem(&visitor.authorize("&resource=http%3A%2F%2Fother%2F")["code"]);
    let other = format!("Bearer {}", tokens["access_token"].as_str().unwrap());
    assert_eq!(call(&other).0, 401, "a token for another resource");
    server.expire_access_tokens();
    assert_eq!(call(&token).0, 401);
}

#[test]
fn switches_have_names_in_json() {
    let server = AuthorizationServer::start(Switches::default()).unwrap();
    let control = format!("{}/control/switches", server.issuer());
    let all = json!({"metadata": "oidc", "registration": "refused", "iss": {"wrong": "x"},
        "pkce": "plain", "documents": "rejected", "refresh": "fixed", "lifetime": 15,
        "expires_in": -1, "sign_in": "page", "device": "slows-down", "exchange": "supported",
        "token_faults": [{"status": 500, "body": "no"}, "close-after"], "hold": "nothing",
        "clients": [{"id": "a", "secret": "b", "redirect_uris": []}]});
    assert_eq!(post(&control, &all.to_string()).0, 200);
    let switches = server.state.switches();
    assert_eq!(switches.iss, Iss::Wrong("x".into()));
    assert_eq!(switches.token_faults.len(), 2);
    assert_eq!(post(&control, r#"{"nothing": 1}"#).0, 400);
    let document =
        client::get(&format!("{}/.well-known/openid-configuration", server.issuer()), "");
    let document: Value = serde_json::from_str(&document.unwrap().body).unwrap();
    assert_eq!(document["code_challenge_methods_supported"], json!(["plain"]));
    let (status, _) = post(&format!("{}/register", server.issuer()), "{}");
    assert_eq!(status, 422);
}

#[test]
fn overlapping_refreshes_are_counted_and_can_be_held() {
    use crate::wait::eventually;
    let server = AuthorizationServer::start(Switches::default()).unwrap();
    let visitor = Visitor::register(&server);
    let (_, tokens) = visitor.redeem(&visitor.authorize("")["code"]);
    server.switch(|switches| switches.hold = Hold::Before);
    std::thread::scope(|scope| {
        let both = [0, 1].map(|_| scope.spawn(|| visitor.refresh(&tokens).0));
        eventually("both wait", || server.held() == 2);
        server.switch(|switches| switches.hold = Hold::Nothing);
        let mut statuses = both.map(|one| one.join().unwrap());
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 400]);
    });
    assert_eq!((server.counts().overlapping, server.counts().reused), (1, 1));
}

#[test]
fn a_token_is_exchanged_and_a_device_is_approved() {
    let known = KnownClient { id: "gate".into(), secret: Some("s".into()), redirect_uris: vec![] };
    let server = AuthorizationServer::start(Switches {
        exchange: Exchange::Supported,
        device: Device::SlowsDown,
        clients: vec![known],
        ..Switches::default()
    });
    let server = server.unwrap();
    let at = |path: &str| format!("{}{path}", server.issuer());
    let jwt = server.jwt("bob", "gateway", &json!({}));
    let kind = "urn%3Aietf%3Aparams%3Aoauth%3A";
    let asked = format!(
        "client_id=gate&client_secret=s&grant_type={kind}grant-type%3Atoken-exchange\
         &subject_token={jwt}&subject_token_type={kind}token-type%3Ajwt&audience=tracker"
    );
    let (status, answer) = post(&at("/token"), &asked);
    assert_eq!(status, 200, "{answer}");
    let token = server.valid(&format!("Bearer {}", answer["access_token"].as_str().unwrap()));
    let token = token.unwrap();
    assert_eq!((&*token.subject, token.audience.as_deref()), ("bob", Some("tracker")));
    let (_, device) = post(&at("/device_authorization"), "client_id=gate");
    let poll = format!(
        "client_id=gate&client_secret=s&grant_type={kind}grant-type%3Adevice_code&device_code={}",
        device["device_code"].as_str().unwrap()
    );
    let polls = [0, 1, 2].map(|_| post(&at("/token"), &poll).1);
    assert_eq!(polls[0]["error"], "slow_down");
    assert_eq!(polls[1]["error"], "authorization_pending");
    assert!(polls[2]["refresh_token"].is_string(), "{}", polls[2]);
}
