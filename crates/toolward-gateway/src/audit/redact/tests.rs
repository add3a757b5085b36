use super::*;
use serde_json::json;

#[test]
fn secrets_are_known_by_their_keys_and_by_their_shape() {
    let redact = Redact::new(&["ssn".into(), "ACME-*".into()]);
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJlc2ln";
    let given = json!({
        "path": "/srv/a.txt", "max_tokens": 100, "Api-Key": "x", "PASSWORD": {"a": 1}, "SSN": 1,
        "list": ["plain", format!("see {jwt}, then"), "use ghp_0123456789abcdefABCDEF01 now"],
        "header": "Authorization: Bearer abcdefgh12345678",
        "url": "postgres://me:hunter2@db.example/x?a=b",
        "aws": "AKIAIOSFODNN7EXAMPLE", "code": "acme-77",
        "pem": "-----BEGIN RSA PRIVATE KEY-----\nMII",
        "ghp_0123456789abcdefABCDEF01": 1,
    });
    let clean = redact.value(given);
    assert_eq!(
        clean,
        json!({
            "path": "/srv/a.txt", "max_tokens": 100, "Api-Key": REDACTED, "PASSWORD": REDACTED,
            "SSN": REDACTED,
            "list": ["plain", "see [redacted], then", "use [redacted] now"],
            "header": "Authorization: Bearer [redacted]",
            "url": "postgres://[redacted]@db.example/x?a=b",
            "aws": REDACTED, "code": REDACTED, "pem": REDACTED, REDACTED: 1,
        })
    );
}

#[test]
fn tokens_are_found_behind_what_stands_before_them() {
    let redact = Redact::default();
    let token = "ghp_0123456789abcdefABCDEF01";
    for before in [
        "GITHUB_TOKEN=",
        "--token=",
        "--token ",
        "?access_token=",
        "x/",
        "a.b/c-",
        "x:",
        "(",
        "\"",
        "https://h/?a=b&t=",
        "env X=1 Y=",
        "~",
        "_",
    ] {
        let clean = redact.text(&format!("{before}{token}")).into_owned();
        assert_eq!(clean, format!("{before}{REDACTED}"));
        assert_eq!(outside(&format!("{before}{token}")), clean);
    }
    for (text, clean) in [
        ("Authorization:Bearer X", "Authorization:Bearer [redacted]"),
        ("Authorization: Bearer X", "Authorization: Bearer [redacted]"),
        ("authorization=hunter2", "authorization=[redacted]"),
        ("-H 'Authorization: Digest u=\u{e4} p=b' x", "-H 'Authorization: Digest [redacted]' x"),
        ("\"Bearer abcdefgh\"", "\"Bearer [redacted]\""),
        ("a=Bearer abcdefgh", "a=Bearer [redacted]"),
        ("PASSWORD=hunter2 run", "PASSWORD=[redacted] run"),
        ("DB_PASSWORD='hun ter2' run", "DB_PASSWORD='[redacted] ter2' run"),
        ("{\"password\": \"hunter2\", \"a\": 1}", "{\"password\": \"[redacted]\", \"a\": 1}"),
        ("{\\\"token\\\":\\\"x\\\"}", "{\\\"token\\\":\\\"[redacted]\\\"}"),
        ("login --password hunter2 -v", "login --password [redacted] -v"),
        ("token=x&page=2", "token=[redacted]&page=2"),
        ("Cookie: a=b; c=d\nHost: h", "Cookie: [redacted]\nHost: h"),
        ("pwd:x", "pwd:[redacted]"),
        ("k=AKIAIOSFODNN7EXAMPLE/x", "k=[redacted]"),
    ] {
        assert_eq!(redact.text(text), clean);
    }
    let given = json!({"headers": [
        {"name": "Authorization", "value": "X"}, {"key": "x-api-key", "value": ["X"]},
        {"name": "Accept", "value": "X"}, ["Cookie", "X"], ["a", "b"],
    ]});
    let expected = json!({"headers": [
        {"name": "Authorization", "value": REDACTED}, {"key": "x-api-key", "value": REDACTED},
        {"name": "Accept", "value": "X"}, ["Cookie", REDACTED], ["a", "b"],
    ]});
    assert_eq!(redact.value(given), expected);
}

#[test]
fn ordinary_text_stays() {
    let redact = Redact::default();
    for text in [
        "",
        "a sk- b",
        "naïve ünïcode — text, with: punctuation; and/or paths/like/this.txt",
        "https://example.com:8080/a@b",
        "basic idea",
        "skating",
        "max_tokens=100, page: 2",
        "src/npm_x/sk-1/a",
        "a=b&c=d",
        "Keyboard: AKIAIOSFODNN7EXAMPLEX",
        "2026-07-28T09:30:00Z",
    ] {
        assert_eq!(redact.text(text), text);
    }
}
