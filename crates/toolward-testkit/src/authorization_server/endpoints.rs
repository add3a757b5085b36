//! Metadata, registration, and the dispatch of requests.

use serde_json::{Value, json};

use super::http::{Exchanged, Response, Service};
use super::signing;
use super::state::{Client, State};
use super::switches::{
    Device, Documents, Exchange, Iss, Metadata, Pkce, Registration, Revocation, Switches, texts,
};

/// The size of [`Metadata::Huge`].
const HUGE_BYTES: usize = 10 << 20;

impl Service for State {
    async fn respond(&self, request: &Exchanged) -> Option<Response> {
        if let Some(response) = self.control(request) {
            return Some(response);
        }
        if request.path.contains("/.well-known/") {
            return self.metadata(&request.path).await;
        }
        let Some(path) = request.path.strip_prefix(&*self.path) else {
            return Some(Response::empty(404));
        };
        Some(match (&*request.method, path) {
            ("GET", "/keys") => Response::json(200, &self.key.jwks()),
            ("POST", "/register") => self.register(&request.body),
            ("GET", "/authorize") => self.authorize(&request.query).await,
            ("POST", "/authorize") => self.sign_in(&request.form()),
            ("POST", "/device_authorization") => self.device_authorization(&request.form()),
            ("GET", "/device") => self.device_page(&request.query),
            ("POST", "/device") => self.device_approval(&request.form()),
            ("POST", "/revoke") => self.revoke(request),
            ("POST", "/token") => return self.token(request).await,
            _ => Response::empty(404),
        })
    }

    fn record(&self, exchanged: Exchanged) {
        if !exchanged.path.starts_with("/control/") {
            self.inner().seen.push(exchanged);
        }
    }
}

impl State {
    async fn metadata(&self, path: &str) -> Option<Response> {
        const OAUTH: &str = "/.well-known/oauth-authorization-server";
        const OIDC: &str = "/.well-known/openid-configuration";
        let switches = self.switches();
        let own = &self.path;
        let (oauth, inserted) = (format!("{OAUTH}{own}"), format!("{OIDC}{own}"));
        let appended = format!("{own}{OIDC}");
        let served: &[&str] = match switches.metadata {
            Metadata::OAuth => &[&oauth],
            Metadata::Oidc => &[&appended],
            Metadata::OidcInserted => &[&inserted],
            Metadata::Root => &[OAUTH],
            Metadata::Missing => &[],
            _ => &[&oauth, &inserted, &appended],
        };
        if !served.contains(&path) {
            return Some(Response::empty(404));
        }
        Some(match switches.metadata {
            Metadata::Redirects => Response::redirect(&format!("{}{path}", self.origin)),
            Metadata::NotJson => Response::html("<h1>Welcome</h1>".into()),
            Metadata::Silent => std::future::pending().await,
            Metadata::Huge => {
                let mut document = self.document(&switches);
                document["padding"] = json!("x".repeat(HUGE_BYTES));
                Response::json(200, &document)
            }
            _ => Response::json(200, &self.document(&switches)),
        })
    }

    fn document(&self, switches: &Switches) -> Value {
        let at = |path: &str| format!("{}{path}", self.issuer);
        let mut document = json!({
            "issuer": switches.issuer.as_ref().unwrap_or(&self.issuer),
            "authorization_endpoint": at("/authorize"),
            "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported":
                ["none", "client_secret_basic", "client_secret_post"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        match switches.pkce {
            Pkce::S256 => document["code_challenge_methods_supported"] = json!(["S256"]),
            Pkce::Plain => document["code_challenge_methods_supported"] = json!(["plain"]),
            Pkce::Absent => {}
        }
        if switches.iss != Iss::Unsupported {
            document["authorization_response_iss_parameter_supported"] = json!(true);
        }
        if switches.registration != Registration::Missing {
            document["registration_endpoint"] = json!(at("/register"));
        }
        if switches.documents != Documents::Absent {
            document["client_id_metadata_document_supported"] = json!(true);
        }
        if switches.device != Device::Absent {
            document["device_authorization_endpoint"] = json!(at("/device_authorization"));
        }
        if switches.revocation != Revocation::Absent {
            document["revocation_endpoint"] = json!(at("/revoke"));
        }
        let mut grants = texts(&document["grant_types_supported"]);
        if switches.device != Device::Absent {
            grants.push("urn:ietf:params:oauth:grant-type:device_code".into());
        }
        if switches.exchange != Exchange::Absent {
            grants.push("urn:ietf:params:oauth:grant-type:token-exchange".into());
        }
        document["grant_types_supported"] = json!(grants);
        document
    }

    /// RFC 7591.
    fn register(&self, body: &str) -> Response {
        let switches = self.switches();
        let wrong = |why: &str| Response::error(400, "invalid_client_metadata", why);
        let Ok(mut asked) = serde_json::from_str::<Value>(body) else { return wrong("not JSON") };
        let method = asked["token_endpoint_auth_method"].as_str().unwrap_or("client_secret_basic");
        let method = method.to_string();
        let confidential = match switches.registration {
            Registration::Missing => return Response::empty(404),
            Registration::Refused => {
                return Response::error(422, "invalid_request", "registration is not supported");
            }
            Registration::PublicOnly if method != "none" => {
                return wrong("multiple authentication methods");
            }
            Registration::Confidential => true,
            _ => method != "none",
        };
        let redirect_uris = texts(&asked["redirect_uris"]);
        let device = texts(&asked["grant_types"]).iter().any(|kind| kind.ends_with("device_code"));
        if redirect_uris.is_empty() && !device {
            return Response::error(400, "invalid_redirect_uri", "redirect_uris is missing");
        }
        if let Some(allowed) = &switches.redirect_uris
            && let Some(other) = redirect_uris.iter().find(|uri| !allowed.contains(uri))
        {
            return Response::error(
                400,
                "invalid_redirect_uri",
                &format!("{other} is not allowed"),
            );
        }
        let id = signing::random("client-");
        let secret = confidential.then(|| signing::random("secret-"));
        asked["client_id"] = json!(id);
        let grant_types = match asked["grant_types"].as_array() {
            Some(_) => texts(&asked["grant_types"]),
            // The default of RFC 7591.
            None => vec!["authorization_code".into()],
        };
        let mut inner = self.inner();
        if let Some(secret) = &secret {
            inner.secrets.push(secret.clone());
            asked["client_secret"] = json!(secret);
            asked["client_secret_expires_at"] = json!(0);
            if method == "none" {
                asked["token_endpoint_auth_method"] = json!("client_secret_basic");
            }
        }
        if switches.registration != Registration::Forgets {
            let name = asked["client_name"].as_str().unwrap_or(&id).to_string();
            let client = Client { secret, redirect_uris, grant_types, name, document: false };
            inner.clients.insert(id, client);
        }
        Response::json(201, &asked)
    }
}
