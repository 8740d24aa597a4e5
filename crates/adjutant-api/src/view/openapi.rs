//! The OpenAPI 3.1 description of the API. A test generates it from the table of calls. It is
//! checked in, so that the hub contains only its text.

/// The path at which the hub serves the description.
pub const PATH: &str = "/api/v1/openapi.json";
pub const DESCRIPTION: &str = include_str!("../../../../docs/openapi.json");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::calls::{SCHEMAS, Schemas};
    use crate::view::codes;
    use adjutant_core::limits::KEY_BYTES_MAX;
    use adjutant_core::token::CallEffect;
    use schemars::SchemaGenerator;
    use schemars::generate::SchemaSettings;
    use serde_json::{Map, Value, json};
    use std::path::Path;

    const COMPONENTS: &str = "#/components/schemas/";

    fn generator(settings: SchemaSettings) -> SchemaGenerator {
        settings
            .with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
            .into_generator()
    }

    /// Renames the schemas of arguments that differ from result schemas with the same name.
    fn rename_schemas(value: &mut Value, names: &[String]) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    if let (true, Some(name)) = (
                        key == "$ref",
                        value
                            .as_str()
                            .and_then(|name| name.strip_prefix(COMPONENTS)),
                    ) {
                        if names.iter().any(|renamed| renamed == name) {
                            *value = json!(format!("{COMPONENTS}{name}Given"));
                        }
                    } else {
                        rename_schemas(value, names);
                    }
                }
            }
            Value::Array(values) => values
                .iter_mut()
                .for_each(|value| rename_schemas(value, names)),
            _ => {}
        }
    }

    fn generate() -> Value {
        let (mut given, mut replied) = (
            generator(SchemaSettings::draft2020_12().for_deserialize()),
            generator(SchemaSettings::draft2020_12().for_serialize()),
        );
        let mut of_calls: Vec<(&Schemas, Value, Value)> = Vec::new();
        for schemas in SCHEMAS
            .iter()
            .filter(|schemas| schemas.effect != CallEffect::LocalOnly)
        {
            of_calls.push((
                schemas,
                (schemas.arguments)(&mut given).to_value(),
                (schemas.reply)(&mut replied).to_value(),
            ));
        }
        of_calls.sort_by_key(|(schemas, ..)| schemas.name);
        let (given, mut components) =
            (given.take_definitions(true), replied.take_definitions(true));
        let differing: Vec<String> = given
            .iter()
            .filter(|(name, schema)| components.get(*name).is_some_and(|other| other != *schema))
            .map(|(name, _)| name.clone())
            .collect();
        for (name, mut schema) in given {
            rename_schemas(&mut schema, &differing);
            let name = if differing.contains(&name) {
                format!("{name}Given")
            } else {
                name
            };
            components.insert(name, schema);
        }
        components.sort_keys();
        components.insert("Problem".to_owned(), problem());
        let mut paths = Map::new();
        for (schemas, mut arguments, reply) in of_calls {
            rename_schemas(&mut arguments, &differing);
            let name = arguments["$ref"]
                .as_str()
                .and_then(|name| name.strip_prefix(COMPONENTS))
                .unwrap_or_default();
            let about = components
                .get_mut(name)
                .and_then(|schema| schema.as_object_mut()?.remove("description"));
            let mut operation = json!({
                "operationId": schemas.name,
                "description": about,
                "x-effect": if schemas.effect == CallEffect::Changes { "changes" } else { "reads" },
                "requestBody": {"content": {"application/json": {"schema": arguments}}},
                "responses": responses("application/json", reply),
            });
            if schemas.takes_key {
                operation["parameters"] =
                    json!([{"$ref": "#/components/parameters/IdempotencyKey"}]);
            }
            paths.insert(
                format!("/api/v1/{}", schemas.name),
                json!({"post": operation}),
            );
        }
        paths["/api/v1/events"]["get"] = events();
        let description = json!({
            "operationId": "openapi",
            "description": "Returns this description.",
            "responses": responses("application/json", json!({"type": "object"})),
        });
        paths.insert(PATH.to_owned(), json!({"get": description}));
        let key = json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Makes the call repeatable: the same key and body return the same reply.",
            "schema": {"type": "string", "minLength": 1, "maxLength": KEY_BYTES_MAX, "pattern": "^[\\t -~]*[!-~][\\t -~]*$"},
        });
        let mut description = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "Adjutant",
                "version": "1",
                "description": "The calls of the hub for callers with a token. Changes only add to the contract: accept fields and words that you do not know.",
                "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
            },
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "A token of adj token new."}},
                "parameters": {"IdempotencyKey": key},
                "schemas": components,
            },
        });
        unwrap_lines(&mut description);
        description
    }

    /// Joins the lines of each paragraph of a description: where a comment is wrapped means
    /// nothing.
    fn unwrap_lines(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match value {
                        Value::String(text) if name == "description" => {
                            let paragraphs: Vec<String> = text
                                .split("\n\n")
                                .map(|one| one.replace('\n', " "))
                                .collect();
                            *text = paragraphs.join("\n\n");
                        }
                        value => unwrap_lines(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(unwrap_lines),
            _ => {}
        }
    }

    fn responses(kind: &str, schema: Value) -> Value {
        json!({
            "200": {"description": "The reply.", "content": {kind: {"schema": schema}}},
            "default": {"description": "A refusal.", "content": {"application/problem+json": {"schema": {"$ref": format!("{COMPONENTS}Problem")}}}},
        })
    }

    fn events() -> Value {
        let parameter = |place: &str, name: &str, about: &str, schema: Value| json!({"name": name, "in": place, "description": about, "schema": schema});
        json!({
            "operationId": "event-stream",
            "description": "Streams the events that the token may see, as Server-Sent Events. The first, `start`, names the position from which the stream is complete.",
            "x-effect": "reads",
            "parameters": [
                parameter("query", "since", "Starts after this position. Default: from now on.", json!({"type": "integer", "minimum": 0})),
                parameter("query", "run", "Selects one run.", json!({"type": "string"})),
                parameter("header", "Last-Event-ID", "Continues after this event.", json!({"type": "integer", "minimum": 0})),
            ],
            "responses": responses("text/event-stream", json!({"type": "string"})),
        })
    }

    fn problem() -> Value {
        json!({
            "description": "An error, as problem details (RFC 9457).",
            "type": "object",
            "required": ["type", "title", "status", "detail", "code"],
            "properties": {
                "type": {"const": "about:blank"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "detail": {"type": "string"},
                "code": {"type": "string", "description": "A stable word.", "examples": [codes::NOT_FOUND, codes::INVALID, codes::NOT_ALLOWED]},
                "hint": {"type": "string", "description": "How to resolve the error."},
            },
        })
    }

    /// Formats a value with one line for each field down to a depth, so that a change of one type
    /// changes one line.
    fn lines(value: &Value, depth: usize) -> String {
        match value {
            Value::Object(fields) if depth > 0 => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{}: {}", json!(name), lines(value, depth - 1)))
                    .collect();
                format!("{{\n{}\n}}", fields.join(",\n"))
            }
            value => value.to_string(),
        }
    }

    fn current() -> String {
        lines(&generate(), 3) + "\n"
    }

    #[test]
    fn description_is_current() {
        assert!(
            DESCRIPTION == current(),
            "write it: cargo test --lib -- --ignored write_the_description"
        );
    }

    #[test]
    #[ignore = "writes the description"]
    fn write_the_description() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        std::fs::write(path, current()).expect("it can be written");
    }

    #[test]
    fn every_reference_is_defined() {
        let description: Value = serde_json::from_str(DESCRIPTION).expect("JSON");
        let mut next = vec![&description];
        let mut references = 0;
        while let Some(value) = next.pop() {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        references += 1;
                        assert!(
                            reference
                                .strip_prefix('#')
                                .is_some_and(|pointer| description.pointer(pointer).is_some()),
                            "{reference}"
                        );
                    }
                    next.extend(fields.values());
                }
                Value::Array(values) => next.extend(values),
                _ => {}
            }
        }
        assert!(references > 100, "{references}");
    }
}
