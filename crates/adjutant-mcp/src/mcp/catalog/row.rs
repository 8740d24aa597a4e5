//! One tool as data.

use super::compat::{ORIGINALLY_REQUIRED, RUN_PREFIX, SPELLED_APART};
use crate::mcp::args::{Args, Param, Spelling, input_schema};
use crate::mcp::caller::McpCaller;
use crate::mcp::refusal::ToolRefusal;
use crate::mcp::reply::ToolReply;
use crate::mcp::session::{McpSession, Role};
use adjutant_core::Action;
use futures::future::BoxFuture;
use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// The function of a tool.
pub type Run = for<'a> fn(
    &'a McpSession,
    &'a McpCaller,
    Args,
) -> BoxFuture<'a, Result<ToolReply, ToolRefusal>>;

/// The function of a tool, with the struct of its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Handler {
    pub run: Run,
    /// The fields of that struct.
    #[cfg(test)]
    pub fields: fn() -> &'static [&'static str],
    /// Parses that struct.
    #[cfg(test)]
    pub decode: fn(Args) -> Result<(), ToolRefusal>,
}

macro_rules! handler {
    ($function:path, $arguments:ty) => {
        $crate::mcp::catalog::row::Handler {
            run: |session, caller, args| {
                Box::pin(
                    async move { $function(session, caller, args.decode::<$arguments>()?).await },
                )
            },
            #[cfg(test)]
            fields: $crate::mcp::args::fields_of::<$arguments>,
            #[cfg(test)]
            decode: |args| args.decode::<$arguments>().map(drop),
        }
    };
}
pub(super) use handler;

/// What a client may assume about a tool when it decides whether to ask its user.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Idempotent: repeating the call with the same arguments adds nothing.
    WritesOnce,
    /// Each call adds something.
    Adds,
    /// May remove something permanently.
    Removes,
}

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct ToolRow {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub params: &'static [Param],
    /// The actions that a caller must be allowed to perform, see [`adjutant_core::principal::may`].
    pub actions: &'static [Action],
    pub effect: Effect,
    /// Kept loaded by clients that otherwise load tools on demand.
    pub core: bool,
    /// The fields of the structured result: name, JSON type (empty: any), and whether the field is
    /// always present.
    pub output: &'static [(&'static str, &'static str, bool)],
    pub handler: Handler,
}

impl ToolRow {
    pub(super) fn listed(&self, role: Role, name: &str, about: &str, compat: bool) -> Tool {
        if !compat {
            return self.describe(
                name,
                about,
                input_schema(self.params, role, Spelling::Own, &[]),
            );
        }
        let apart = SPELLED_APART
            .iter()
            .find(|(tool, _)| *tool == name)
            .map_or(&[][..], |(_, names)| names);
        let required = ORIGINALLY_REQUIRED
            .iter()
            .find(|(tool, _)| *tool == name)
            .map_or(&[][..], |(_, names)| names);
        self.describe(
            name,
            about,
            input_schema(self.params, role, Spelling::Original(apart), required),
        )
    }

    pub(super) fn listed_for_agent(&self, agent: &str, about: &str) -> Tool {
        let params: Vec<Param> = self
            .params
            .iter()
            .filter(|param| param.name != "agent")
            .copied()
            .collect();
        self.describe(
            &format!("{RUN_PREFIX}{agent}"),
            about,
            input_schema(&params, Role::Parent, Spelling::Original(&[]), &[]),
        )
    }

    fn describe(&self, name: &str, about: &str, input: JsonObject) -> Tool {
        let tool = Tool::new(name.to_owned(), about.to_owned(), input)
            .with_title(self.title)
            .with_raw_output_schema(Arc::new(self.output_schema()))
            .with_annotations(self.annotations());
        if !self.core {
            return tool;
        }
        let mut meta = MetaObject::new();
        meta.insert("anthropic/alwaysLoad".into(), Value::Bool(true));
        tool.with_meta(meta)
    }

    fn annotations(&self) -> ToolAnnotations {
        let (reads, removes, once) = match self.effect {
            Effect::Reads => (true, false, true),
            Effect::WritesOnce => (false, false, true),
            Effect::Adds => (false, false, false),
            Effect::Removes => (false, true, false),
        };
        ToolAnnotations::with_title(self.title)
            .read_only(reads)
            .destructive(removes)
            .idempotent(once)
            .open_world(false)
    }

    fn output_schema(&self) -> JsonObject {
        let mut properties = JsonObject::new();
        let mut required = Vec::new();
        for (name, kind, always) in self.output {
            properties.insert(
                (*name).to_owned(),
                if kind.is_empty() {
                    json!({})
                } else {
                    json!({ "type": kind })
                },
            );
            if *always {
                required.push(*name);
            }
        }
        let mut schema = JsonObject::new();
        schema.insert("type".into(), json!("object"));
        schema.insert("properties".into(), Value::Object(properties));
        schema.insert("required".into(), json!(required));
        schema
    }
}
