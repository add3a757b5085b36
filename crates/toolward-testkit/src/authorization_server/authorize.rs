//! The authorization endpoint with its page, and the device flow.

use serde_json::json;

use super::http::{self, Form, Response, encoded, escaped};
use super::signing;
use super::state::{Client, Code, DeviceRequest, State};
use super::switches::{Device, Documents, Iss, SignIn, texts};

impl State {
    /// The client of a request: a known one, or one whose id is the address of its document.
    async fn requesting_client(&self, id: &str) -> Result<Client, String> {
        if let Some(client) = self.client(id) {
            return Ok(client);
        }
        let documents = self.switches.borrow().documents;
        if !id.starts_with("http") || documents == Documents::Absent {
            return Err(format!("unknown client {id}"));
        }
        if documents == Documents::Rejected {
            return Err("this client is not allowed".into());
        }
        let document = http::get(id).await.map_err(|error| format!("{id}: {error}"))?;
        if document["client_id"] != id {
            return Err(format!("{id} is the document of {}", document["client_id"]));
        }
        let client = Client {
            secret: None,
            redirect_uris: texts(&document["redirect_uris"]),
            grant_types: texts(&document["grant_types"]),
            name: document["client_name"].as_str().unwrap_or(id).into(),
            document: true,
        };
        self.inner().clients.insert(id.into(), client.clone());
        Ok(client)
    }

    /// Errors before the redirect URI is verified are shown, and never redirected.
    pub(super) async fn authorize(&self, query: &Form) -> Response {
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let switches = self.switches();
        let client = match self.requesting_client(text("client_id")).await {
            Ok(client) => client,
            Err(why) => return Response::error(400, "invalid_client", &why),
        };
        let to = text("redirect_uri");
        let allowed = switches.redirect_uris.as_ref();
        if !client.redirect_uris.iter().any(|known| known == to)
            || allowed.is_some_and(|allowed| !allowed.iter().any(|known| known == to))
        {
            return Response::error(400, "invalid_request", &format!("{to} is not registered"));
        }
        if text("response_type") != "code" {
            return self.back(query, &[("error", "unsupported_response_type")]);
        }
        if text("code_challenge_method") != "S256" || text("code_challenge").len() != 43 {
            return self.back(query, &[("error", "invalid_request")]);
        }
        if switches.reject_resource && query.contains_key("resource") {
            let why = "AADSTS9010010: the resource parameter does not match the requested scopes";
            return self.back(query, &[("error", "invalid_target"), ("error_description", why)]);
        }
        match switches.sign_in {
            SignIn::Automatic => self.consent(query, &switches.subject),
            SignIn::Denied => self.back(query, &[("error", "access_denied")]),
            SignIn::Page => Response::html(page(&client.name, &switches.subjects, query)),
        }
    }

    /// The response to a button of the sign-in form.
    pub(super) fn sign_in(&self, form: &Form) -> Response {
        let subject = form.get("subject").map_or("", String::as_str);
        match self.client(form.get("client_id").map_or("", String::as_str)) {
            None => Response::error(400, "invalid_client", "unknown client"),
            Some(_) if subject.is_empty() => self.back(form, &[("error", "access_denied")]),
            Some(_) => self.consent(form, subject),
        }
    }

    fn consent(&self, query: &Form, subject: &str) -> Response {
        let code = signing::random("code-");
        let made = Code {
            client: query.get("client_id").cloned().unwrap_or_default(),
            redirect_uri: query.get("redirect_uri").cloned().unwrap_or_default(),
            challenge: query.get("code_challenge").cloned(),
            nonce: query.get("nonce").cloned(),
            subject: subject.into(),
            scope: query.get("scope").cloned().unwrap_or_default(),
            resource: query.get("resource").cloned(),
            used: None,
        };
        let mut inner = self.inner();
        inner.secrets.push(code.clone());
        inner.codes.insert(code.clone(), made);
        drop(inner);
        self.back(query, &[("code", &code)])
    }

    /// The redirect to the client.
    fn back(&self, query: &Form, members: &[(&str, &str)]) -> Response {
        let mut to = query.get("redirect_uri").cloned().unwrap_or_default();
        let state = query.get("state").map(|state| ("state", state.as_str()));
        let iss = match &self.switches.borrow().iss {
            Iss::Correct => Some(self.issuer.clone()),
            Iss::Wrong(other) => Some(other.clone()),
            Iss::Unsupported | Iss::Missing => None,
        };
        let iss = iss.as_ref().map(|iss| ("iss", iss.as_str()));
        for (name, value) in members.iter().copied().chain(state).chain(iss) {
            to.push(if to.contains('?') { '&' } else { '?' });
            to += &format!("{name}={}", encoded(value));
        }
        Response::redirect(&to)
    }

    /// RFC 8628.
    pub(super) fn device_authorization(&self, form: &Form) -> Response {
        let switches = self.switches();
        if switches.device == Device::Absent {
            return Response::empty(404);
        }
        let client = form.get("client_id").cloned().unwrap_or_default();
        if self.client(&client).is_none() {
            return Response::error(401, "invalid_client", "unknown client");
        }
        if switches.reject_resource && form.contains_key("resource") {
            return Response::error(400, "invalid_target", "AADSTS9010010");
        }
        let code = signing::random("device-");
        let user_code = signing::random("").to_ascii_uppercase()[..8].to_string();
        let page = format!("{}/device", self.issuer);
        let answer = json!({"device_code": code, "user_code": user_code, "expires_in": 600,
            "verification_uri": page, "interval": 1,
            "verification_uri_complete": format!("{page}?user_code={}", encoded(&user_code))});
        let request = DeviceRequest {
            client,
            user_code,
            scope: form.get("scope").cloned().unwrap_or_default(),
            resource: form.get("resource").cloned(),
            polls: 0,
            approved: None,
        };
        let mut inner = self.inner();
        inner.secrets.push(code.clone());
        inner.devices.insert(code, request);
        Response::json(200, &answer)
    }

    pub(super) fn device_page(&self, query: &Form) -> Response {
        Response::html(page("device", &self.switches.borrow().subjects, query))
    }

    pub(super) fn device_approval(&self, form: &Form) -> Response {
        let code = form.get("user_code").map_or("", String::as_str);
        let mut inner = self.inner();
        let Some(found) = inner.devices.values_mut().find(|device| device.user_code == code) else {
            return Response::error(400, "invalid_request", "unknown user code");
        };
        found.approved = form.get("subject").cloned();
        Response::html("<title>Connected</title><h1>You can close this page</h1>".into())
    }
}

/// A form with hidden `members`, a button for each subject, and one to deny.
fn page(client: &str, subjects: &[String], members: &Form) -> String {
    let hidden = members.iter().map(|(name, value)| {
        format!("<input type=hidden name=\"{}\" value=\"{}\">", escaped(name), escaped(value))
    });
    let buttons = subjects.iter().map(|subject| {
        let subject = escaped(subject);
        format!("<button name=subject value=\"{subject}\" id=\"as-{subject}\">Continue as {subject}</button>")
    });
    let (hidden, buttons) = (hidden.collect::<String>(), buttons.collect::<String>());
    format!(
        "<!doctype html><title>Sign in</title><h1>Sign in for {}</h1><form method=post>{hidden}\
         {buttons}<button name=subject value=\"\" id=deny>Deny</button></form>",
        escaped(client)
    )
}
