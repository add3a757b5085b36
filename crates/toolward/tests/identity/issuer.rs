//! An issuer of JWTs and its authorization server, as far as clients and the gateway need them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use ring::rand::SystemRandom;
use ring::rsa::{KeyPair as RsaKeyPair, PublicKeyComponents};
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

/// A signing key.
pub struct Key {
    pub id: String,
    pair: Pair,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Key {
    /// `EC`, `P-384`, `Ed25519` or `RSA`.
    pub fn new(id: &str, kind: &str) -> Key {
        let random = SystemRandom::new();
        let p256 = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let p384 = &signature::ECDSA_P384_SHA384_FIXED_SIGNING;
        let ecdsa = |by| {
            let made = EcdsaKeyPair::generate_pkcs8(by, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(by, made.as_ref(), &random).unwrap()
        };
        let pair = match kind {
            "EC" => Pair::P256(ecdsa(p256)),
            "P-384" => Pair::P384(ecdsa(p384)),
            "Ed25519" => {
                let made = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap())
            }
            _ => {
                let made = Command::new("openssl")
                    .args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
                    .args(["-outform", "DER"])
                    .output()
                    .unwrap();
                // Versions of openssl encode the key differently.
                let read = RsaKeyPair::from_der(&made.stdout);
                Pair::Rsa(read.or_else(|_| RsaKeyPair::from_pkcs8(&made.stdout)).unwrap())
            }
        };
        Key { id: id.into(), pair }
    }

    /// The public key.
    pub fn public(&self) -> Value {
        let point = |bytes: &[u8], curve: &str| {
            let (x, y) = bytes[1..].split_at((bytes.len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "x": BASE64.encode(x), "y": BASE64.encode(y)})
        };
        let mut key = match &self.pair {
            Pair::P256(pair) => point(pair.public_key().as_ref(), "P-256"),
            Pair::P384(pair) => point(pair.public_key().as_ref(), "P-384"),
            Pair::Ed25519(pair) => {
                let x = BASE64.encode(pair.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "x": x})
            }
            Pair::Rsa(pair) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": BASE64.encode(public.n), "e": BASE64.encode(public.e)})
            }
        };
        key["kid"] = json!(self.id);
        key["use"] = json!("sig");
        key
    }

    fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
            Pair::Rsa(_) => "RS256",
        }
    }

    pub fn head(&self) -> Value {
        json!({"alg": self.algorithm(), "kid": self.id, "typ": "at+jwt"})
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_text(&self.head().to_string(), &claims.to_string())
    }

    /// The same with a header and claims that need not be JSON.
    pub fn sign_text(&self, head: &str, claims: &str) -> String {
        let signed = format!("{}.{}", BASE64.encode(head), BASE64.encode(claims));
        let random = SystemRandom::new();
        let bytes = signed.as_bytes();
        let signature = match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                pair.sign(&random, bytes).unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(bytes).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let by: &dyn signature::RsaEncoding = match head {
                    head if head.contains("RS384") => &signature::RSA_PKCS1_SHA384,
                    head if head.contains("RS512") => &signature::RSA_PKCS1_SHA512,
                    head if head.contains("PS256") => &signature::RSA_PSS_SHA256,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(by, &random, bytes, &mut out).unwrap();
                out
            }
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

/// How the issuer responds to a request for its keys.
#[derive(Clone)]
pub enum Mood {
    Good,
    /// A status, additional headers, and a body.
    Says(u16, String, String),
    /// It accepts the request and never responds.
    Silent,
}

pub struct Issuer {
    pub url: String,
    state: Arc<State>,
}

struct State {
    url: String,
    keys: Mutex<Vec<Arc<Key>>>,
    mood: Mutex<Mood>,
    /// Claims of tokens that the authorization server issues.
    claims: Mutex<Value>,
    /// Their lifetime, in seconds.
    lives: Mutex<u64>,
    /// Requests, each as its request line, its `Authorization` and its body.
    asked: Mutex<Vec<(String, String, String)>>,
}

impl Issuer {
    pub fn start(keys: Vec<Key>) -> Issuer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
        let state = Arc::new(State {
            url: url.clone(),
            keys: Mutex::new(keys.into_iter().map(Arc::new).collect()),
            mood: Mutex::new(Mood::Good),
            claims: Mutex::new(json!({"sub": "someone"})),
            lives: Mutex::new(300),
            asked: Mutex::default(),
        });
        let issuer = Issuer { url, state: state.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = state.clone();
                std::thread::spawn(move || state.answer(stream));
            }
        });
        issuer
    }

    /// `identity` of a configuration.
    pub fn identity(&self, more: Value) -> Value {
        let mut jwt = json!({"issuer": self.url, "jwks": format!("{}/keys", self.url)});
        for (name, value) in more.as_object().unwrap() {
            jwt[name] = value.clone();
        }
        json!({"jwt": jwt})
    }

    pub fn key(&self, id: &str) -> Arc<Key> {
        let keys = self.state.keys.lock().unwrap();
        keys.iter().find(|key| key.id == id).unwrap().clone()
    }

    /// Serves only these keys from now on.
    pub fn rotate(&self, keys: Vec<Key>) {
        *self.state.keys.lock().unwrap() = keys.into_iter().map(Arc::new).collect();
    }

    pub fn feel(&self, mood: Mood) {
        *self.state.mood.lock().unwrap() = mood;
    }

    /// Sets the claims and the lifetime of tokens that are issued from now on.
    pub fn grant(&self, claims: Value, lives: u64) {
        *self.state.claims.lock().unwrap() = claims;
        *self.state.lives.lock().unwrap() = lives;
    }

    /// Claims that the gateway accepts.
    pub fn claims(&self, audience: &str, more: Value) -> Value {
        let mut claims =
            json!({"iss": self.url, "aud": audience, "exp": now() + 300, "iat": now()});
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    /// The number of requests for something.
    pub fn asked(&self, path: &str) -> Vec<(String, String)> {
        let asked = self.state.asked.lock().unwrap();
        let fits = |line: &str| line.split([' ', '?']).nth(1) == Some(path);
        let asked = asked.iter().filter(|(line, _, _)| fits(line));
        asked.map(|(_, authorization, body)| (authorization.clone(), body.clone())).collect()
    }
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

impl State {
    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut line, mut authorization, mut length) = (String::new(), String::new(), 0);
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut field = String::new();
            if reader.read_line(&mut field).unwrap_or(0) == 0 || field.trim().is_empty() {
                break;
            }
            let (name, value) = field.split_once(':').unwrap();
            match name.to_ascii_lowercase().as_str() {
                "authorization" => authorization = value.trim().into(),
                "content-length" => length = value.trim().parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        let asked = (line.trim().to_string(), authorization.clone(), body.clone());
        self.asked.lock().unwrap().push(asked);
        let target = line.split(' ').nth(1).unwrap_or_default().to_string();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let (status, more, body) = match path {
            "/keys" => match self.mood.lock().unwrap().clone() {
                Mood::Good => (200, String::new(), self.keys()),
                Mood::Says(status, more, body) => (status, more, body),
                Mood::Silent => {
                    std::thread::sleep(Duration::from_secs(30));
                    return;
                }
            },
            "/.well-known/oauth-authorization-server" => (200, String::new(), self.metadata()),
            "/register" => {
                let mut client: Value = serde_json::from_str(&body).unwrap();
                client["client_id"] = json!("registered");
                (201, String::new(), client.to_string())
            }
            "/authorize" => {
                let asked = form(query);
                let code = BASE64.encode(format!("{} {}", asked("resource"), asked("scope")));
                let (to, state) = (asked("redirect_uri"), asked("state"));
                let iss = &self.url;
                (302, format!("Location: {to}?code={code}&state={state}&iss={iss}\r\n"), "".into())
            }
            "/token" => self.token(&authorization, &body),
            _ => (404, String::new(), String::new()),
        };
        let _ = write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n{more}\r\n{body}",
            body.len()
        );
    }

    fn keys(&self) -> String {
        let keys: Vec<Value> = self.keys.lock().unwrap().iter().map(|key| key.public()).collect();
        json!({"keys": keys}).to_string()
    }

    fn metadata(&self) -> String {
        let url = &self.url;
        json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "registration_endpoint": format!("{url}/register"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })
        .to_string()
    }

    fn token(&self, authorization: &str, body: &str) -> (u16, String, String) {
        let sent = form(body);
        let (resource, scope) = match &*sent("grant_type") {
            "client_credentials" => {
                let expected = format!("Basic {}", STANDARD.encode("gate%2F1:s%26cret"));
                if authorization != expected {
                    return (401, String::new(), json!({"error": "invalid_client"}).to_string());
                }
                (sent("resource"), sent("scope"))
            }
            _ => {
                assert!(!sent("code_verifier").is_empty(), "without PKCE: {body}");
                let code = String::from_utf8(BASE64.decode(sent("code")).unwrap()).unwrap();
                let (resource, scope) = code.split_once(' ').unwrap();
                assert_eq!(sent("resource"), resource);
                (resource.to_string(), scope.to_string())
            }
        };
        let lives = *self.lives.lock().unwrap();
        let mut claims = self.claims.lock().unwrap().clone();
        claims["iss"] = json!(self.url);
        claims["aud"] = json!(resource);
        claims["scope"] = json!(scope);
        claims["exp"] = json!(now() + lives);
        // Each token is unique.
        claims["jti"] = json!(self.asked.lock().unwrap().len());
        let token = self.keys.lock().unwrap().first().unwrap().sign(&claims);
        let answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": lives,
            "scope": scope});
        (200, String::new(), answer.to_string())
    }
}

/// The values of a form by name.
fn form(text: &str) -> impl Fn(&str) -> String + use<> {
    let decode = |text: &str| {
        let mut out = Vec::new();
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            out.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => other,
            });
        }
        String::from_utf8(out).unwrap()
    };
    let pairs: Vec<(String, String)> = text
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect();
    move |wanted| {
        let found = pairs.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }
}
