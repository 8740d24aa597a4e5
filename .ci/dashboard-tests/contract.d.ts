// The types of the API, by the names that the dashboard's modules use. `openapi.d.ts` is generated from `docs/openapi.json`.
import type { components, operations } from "./openapi";

/** What a call takes and returns, by the call's name. */
export type CallName = { [Name in keyof operations]: operations[Name] extends { responses: { 200: { content: { "application/json": unknown } } } } ? Name : never }[keyof operations] &
    string;
type Sent<Operation> = Operation extends { requestBody?: { content: { "application/json": infer Body } } } ? Body : never;
type Received<Operation> = Operation extends { responses: { 200: { content: { "application/json": infer Reply } } } } ? Reply : never;
export type Body<Name extends CallName> = Sent<operations[Name]>;
export type Reply<Name extends CallName> = Received<operations[Name]>;

type Schemas = components["schemas"];
export type Attention = Schemas["AttentionList"];
export type Budget = Schemas["BudgetView"];
export type Changes = Schemas["ChangesViewGiven"];
export type Entry = Schemas["ChatEntryView"];
export type Event = Schemas["EventView"];
export type Mention = Schemas["MentionView"];
export type Pool = Schemas["PoolView"];
export type Problem = Schemas["Problem"];
export type Request = Schemas["RequestView"];
export type Run = Schemas["RunView"];
