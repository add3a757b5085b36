//! CEL, with one expression per rule, evaluated in order: deny rules first.

use cel::{Context, Program, Value};

use super::Contender;
use crate::world::{Request, Shape, World};

pub struct Cel {
    rules: Vec<(Program, bool)>,
    requests: Vec<Context<'static, 'static>>,
}

impl Cel {
    pub fn new(world: &World, requests: &[Request]) -> Cel {
        let mut rules: Vec<(Program, bool)> = world
            .rules
            .iter()
            .map(|rule| {
                let mut text = format!("agent == '{}'", world.agents[rule.agent]);
                if let Some(server) = rule.server {
                    text += &format!(" && server == '{}'", world.servers[server]);
                }
                match &rule.shape {
                    Shape::Name(name) => text += &format!(" && tool == '{name}'"),
                    Shape::Prefix(prefix) => text += &format!(" && tool.startsWith('{prefix}')"),
                    Shape::Suffix(suffix) => text += &format!(" && tool.endsWith('{suffix}')"),
                    Shape::Everything => {}
                }
                (Program::compile(&text).expect("the expression is valid"), rule.deny)
            })
            .collect();
        rules.sort_by_key(|(_, deny)| !deny);
        let requests = requests
            .iter()
            .map(|request| {
                let mut context = Context::default();
                context.add_variable_from_value("agent", world.agents[request.agent].clone());
                context.add_variable_from_value("server", world.servers[request.server].clone());
                context.add_variable_from_value("tool", request.tool.to_string());
                context
            })
            .collect();
        Cel { rules, requests }
    }
}

impl Contender for Cel {
    fn name(&self) -> &'static str {
        "cel"
    }

    fn allows(&self, request: usize) -> bool {
        let context = &self.requests[request];
        let matches = |(program, _): &&(Program, bool)| {
            matches!(program.execute(context), Ok(Value::Bool(true)))
        };
        self.rules.iter().find(matches).is_some_and(|(_, deny)| !deny)
    }
}
