//! Cedar, with one policy per rule. Agent, server and exact tool are in the policy's scope, which Cedar
//! compares first; patterns use `like`. Cedar's semantics are the same otherwise: forbid wins, and
//! nothing is permitted by default.

use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request as CedarRequest,
    RestrictedExpression,
};

use super::Contender;
use crate::world::{Request, Rule, Shape, World};

pub struct Cedar {
    authorizer: Authorizer,
    policies: PolicySet,
    entities: Entities,
    requests: Vec<CedarRequest>,
}

impl Cedar {
    pub fn new(world: &World, requests: &[Request]) -> Cedar {
        let text: String = world.rules.iter().map(|rule| policy(world, rule)).collect();
        let requests = requests
            .iter()
            .map(|request| {
                let (server, tool) = (&world.servers[request.server], &request.tool);
                CedarRequest::new(
                    uid("Agent", &world.agents[request.agent]),
                    uid("Action", "call"),
                    uid("Tool", &format!("{server}/{tool}")),
                    Context::empty(),
                    None,
                )
                .expect("there is no schema to break")
            })
            .collect();
        Cedar {
            authorizer: Authorizer::new(),
            policies: text.parse().expect("the policies are valid"),
            entities: entities(world),
            requests,
        }
    }
}

impl Contender for Cedar {
    fn name(&self) -> &'static str {
        "cedar-policy"
    }

    fn allows(&self, request: usize) -> bool {
        let request = &self.requests[request];
        let response = self.authorizer.is_authorized(request, &self.policies, &self.entities);
        response.decision() == Decision::Allow
    }
}

fn policy(world: &World, rule: &Rule) -> String {
    let effect = if rule.deny { "forbid" } else { "permit" };
    let agent = &world.agents[rule.agent];
    let server = rule.server.map(|server| &world.servers[server]);
    let mut resource = match server {
        Some(server) => format!("resource in Server::\"{server}\""),
        None => "resource".into(),
    };
    let when = match (&rule.shape, server) {
        (Shape::Everything, _) => String::new(),
        (Shape::Name(name), Some(server)) => {
            resource = format!("resource == Tool::\"{server}/{name}\"");
            String::new()
        }
        (Shape::Name(name), None) => format!(" when {{ resource.name == \"{name}\" }}"),
        (Shape::Prefix(text), _) => format!(" when {{ resource.name like \"{text}*\" }}"),
        (Shape::Suffix(text), _) => format!(" when {{ resource.name like \"*{text}\" }}"),
    };
    format!("{effect}(principal == Agent::\"{agent}\", action, {resource}){when};\n")
}

fn entities(world: &World) -> Entities {
    let mut all = Vec::new();
    for (server, tools) in world.servers.iter().zip(&world.tools) {
        all.push(Entity::with_uid(uid("Server", server)));
        for tool in tools {
            let name = RestrictedExpression::new_string(tool.clone());
            let uid_of_tool = uid("Tool", &format!("{server}/{tool}"));
            let parents = [uid("Server", server)].into();
            let attributes = [("name".to_string(), name)].into();
            let entity = Entity::new(uid_of_tool, attributes, parents);
            all.push(entity.expect("a string is a valid attribute"));
        }
    }
    Entities::from_entities(all, None).expect("entities are unique")
}

fn uid(kind: &str, id: &str) -> EntityUid {
    let kind = kind.parse().expect("a plain word is a type name");
    EntityUid::from_type_name_and_id(kind, id.parse().expect("any text is an id"))
}
