//! Attending: `inbox`, `reply`, `next`.

use super::args::{InboxArgs, ReplyArgs};
use super::context::{Context, now, text_argument};
use super::exit::{Exit, words};
use super::out::{Ended, Stop, fail, fail_hint};
use super::style::Style;
use super::table::{Cell, Column, painted, plain, render};
use super::{age, chat, decide, look, state, waiting};
use crate::config::dispatch_env;
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, Answered, AttentionList, Cancel, ListAttention, ListRequests, MentionView, ReadRequest, RequestView, Resume, Retry,
    RunView, codes, unread_text,
};
use adjutant_core::{RequestId, RequestNo};
use std::io::{BufRead, Write};

/// Columns of a chat's title beside what was said in it.
const TITLE_COLUMNS_MAX: usize = 24;

/// How long one look whether a request is still open stays at the hub.
const SETTLED_WAIT_MS: u64 = 30_000;

/// Lists what needs the person: requests, oldest first, stopped runs, bad ends, messages in chats.
pub async fn inbox(args: &InboxArgs, cx: &Context) -> Ended {
    let mut list = cx.hub.call(&ListAttention { run: args.run.clone(), ..ListAttention::default() }).await?;
    let first = decide::way_of_first(&list);
    if args.all {
        let all = cx.hub.call(&ListRequests { run: args.run.clone(), all: true, limit: None }).await?;
        (list.requests, list.requests_more) = (all.requests, all.more);
    }
    if cx.out.json {
        cx.out.inbox(&list)?;
        return Ok(Exit::Done);
    }
    if list.total() == 0 {
        cx.out.say("nothing is open")?;
        return Ok(Exit::Done);
    }
    if !list.requests.is_empty() {
        questions(&list, cx)?;
    }
    if !list.runs.is_empty() {
        standing_still(&list, cx)?;
    }
    if !list.mentions.is_empty() {
        named_in(&list, cx)?;
    }
    match first {
        Some(_) if cx.out.interactive => cx.out.next("adj next")?,
        Some(way) => cx.out.next(&way)?,
        None => {}
    }
    Ok(Exit::Done)
}

/// Prints the runs that need the person, a line for each.
fn standing_still(list: &AttentionList, cx: &Context) -> Result<(), Stop> {
    let since = if cx.out.terminal { "AGE" } else { "AT" };
    let rows: Vec<Vec<Cell>> = list
        .runs
        .iter()
        .map(|run| {
            let look = state::look(run, now());
            let what = run.attention.as_ref().map(state::attention_text).unwrap_or_default();
            vec![
                painted(&run.name, Style::Strong),
                plain(&run.agent),
                painted(&look.text, look.style),
                plain(&cx.time(run.ended_at.as_ref().unwrap_or(&run.updated_at))),
                plain(&text::line(&what)),
            ]
        })
        .collect();
    let columns =
        [Column::always("RUN"), Column::optional("AGENT", 2), Column::optional("STATE", 0), Column::optional(since, 1), Column::always("WHAT")];
    cx.out.text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.runs_more > 0 {
        cx.out.say(&format!("… {} more runs", list.runs_more))?;
    }
    Ok(())
}

/// Prints what in chats is for the person, a line for each chat.
fn named_in(list: &AttentionList, cx: &Context) -> Result<(), Stop> {
    let since = if cx.out.terminal { "AGE" } else { "AT" };
    let rows: Vec<Vec<Cell>> = list
        .mentions
        .iter()
        .map(|mention| {
            let message = &mention.message;
            let what = if message.kind == "flag" { format!("flag: {}", message.text) } else { message.text.clone() };
            let unread = if mention.unread > 1 { format!("{} unread", unread_text(mention.unread)) } else { String::new() };
            let number = painted(&message.message_id, Style::Attention);
            vec![
                number,
                painted(&message.name, Style::Strong),
                plain(&text::cut(&text::line(&mention.title), TITLE_COLUMNS_MAX)),
                plain(&unread),
                plain(&cx.time(&message.at)),
                plain(&what),
            ]
        })
        .collect();
    let columns = [
        Column::always("MESSAGE"),
        Column::optional("FROM", 0),
        Column::optional("CHAT", 2),
        Column::optional("", 3),
        Column::optional(since, 1),
        Column::always("WHAT"),
    ];
    cx.out.text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.mentions_more {
        cx.out.say("… and more: adj chat ls")?;
    }
    Ok(())
}

fn questions(list: &AttentionList, cx: &Context) -> Result<(), Stop> {
    let since = if cx.out.terminal { "WAITS" } else { "ASKED" };
    let rows: Vec<Vec<Cell>> = list
        .requests
        .iter()
        .map(|request| {
            let number = painted(&request.number, Style::Attention);
            let run = painted(&request.run_name, Style::Strong);
            vec![number, run, plain(&request.kind), plain(&request.status), plain(&cx.time(&request.asked_at)), plain(&with_options(request))]
        })
        .collect();
    let columns = [
        Column::always("NO"),
        Column::optional("RUN", 0),
        Column::optional("KIND", 2),
        Column::optional("STATUS", 3),
        Column::optional(since, 1),
        Column::always("WHAT"),
    ];
    cx.out.text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    if list.requests_more > 0 {
        cx.out.say(&format!("… {} more", list.requests_more))?;
    }
    Ok(())
}

fn with_options(request: &RequestView) -> String {
    let options: Vec<String> = request.options.iter().enumerate().map(|(n, option)| format!("{}) {option}", n + 1)).collect();
    let of = request.group.as_ref().map(|group| format!("({} of {}) ", group.place, group.size)).unwrap_or_default();
    let came = match look::settled(request) {
        came if came.is_empty() => String::new(),
        came => format!("→ {came}  "),
    };
    [format!("{came}{of}{}", request.question), options.join(" ")].join("  ").trim_end().to_owned()
}

/// Answers every open question of a group at once: all of them, or none when one is refused.
async fn reply_to_group(args: &ReplyArgs, cx: &Context) -> Ended {
    let named = cx.hub.call(&ReadRequest { message_id: args.to.clone(), wait_ms: 0 }).await?;
    let first = named.group.as_ref().map(|group| &group.first);
    let belongs = |request: &RequestView| match first {
        Some(first) => request.group.as_ref().is_some_and(|group| group.first == *first),
        None => request.message_id == named.message_id,
    };
    let listed = cx.hub.call(&ListRequests { run: Some(named.run_id.clone()), all: false, limit: Some(u32::MAX) }).await?.requests;
    let open: Vec<RequestView> = listed.into_iter().filter(|request| request.status == "pending" && belongs(request)).collect();
    let texts: Vec<&String> = std::iter::once(&args.text).chain(&args.more).collect();
    if open.len() != texts.len() {
        let numbers: Vec<String> = open.iter().map(|request| text::line(&request.number)).collect();
        let message = format!("{} answers were given, and open are {}: {}", texts.len(), open.len(), numbers.join(" "));
        let wanted = vec!["\"…\""; open.len().max(1)].join(" ");
        return Err(fail_hint(words::USAGE, message, format!("adj reply --group {} {wanted}", text::line(&args.to))));
    }
    if texts.iter().any(|given| given.trim().is_empty()) {
        return Err(fail_hint(words::USAGE, "one of the answers is empty", "give one for each open question of the group, in their order"));
    }
    let answers = open
        .iter()
        .zip(texts)
        .map(|(request, given)| AnswerOne { message_id: Some(request.message_id.clone()), answer: given.clone(), ..AnswerOne::default() })
        .collect();
    let answered = cx.hub.call(&AnswerRequests { answers }).await?;
    if cx.out.json {
        cx.out.data(&answered)?;
    } else {
        say_answered(&answered, cx)?;
    }
    Ok(Exit::Done)
}

/// Answers one question, or a group.
pub async fn reply(args: &ReplyArgs, cx: &Context) -> Ended {
    if args.group {
        return reply_to_group(args, cx).await;
    }
    if !args.more.is_empty() {
        let hint = "put the answer in quotes; --group answers several that were asked together";
        return Err(fail_hint(words::USAGE, "there is more than one answer", hint));
    }
    let given = text_argument(&args.text, "the answer")?;
    let given = if args.text == "-" { given.trim_end_matches(['\n', '\r']).to_owned() } else { given };
    if given.trim().is_empty() {
        return Err(fail_hint(words::USAGE, "the answer is empty", format!("adj reply {} \"…\"", text::line(&args.to))));
    }
    let answer = AnswerOne { answer: given, ..named(&args.to, cx).await? };
    let answered = cx.hub.call(&AnswerRequests { answers: vec![answer] }).await?;
    if cx.out.json {
        cx.out.data(&answered)?;
        return Ok(Exit::Done);
    }
    say_answered(&answered, cx)?;
    Ok(Exit::Done)
}

/// Begins an answer to the request that is named: by itself, or by its run.
pub async fn named(to: &str, cx: &Context) -> Result<AnswerOne, Stop> {
    let to_one = Some(to.to_owned());
    Ok(if is_request(to, cx).await? {
        AnswerOne { message_id: to_one, ..AnswerOne::default() }
    } else {
        AnswerOne { run: to_one, ..AnswerOne::default() }
    })
}

/// Tells whether a question is named, and not a run. A UUID may be either's.
async fn is_request(named: &str, cx: &Context) -> Result<bool, Stop> {
    if RequestNo::parse(named).is_ok() {
        return Ok(true);
    }
    if RequestId::parse(named).is_err() {
        return Ok(false);
    }
    match cx.hub.call(&ReadRequest { message_id: named.to_owned(), wait_ms: 0 }).await {
        Ok(_) => Ok(true),
        Err(error) if error.code == codes::NOT_FOUND => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Says what was recorded as the answer to a request.
fn recorded(request: &RequestView) -> String {
    let answer = text::cut(&text::line(request.answer.as_deref().unwrap_or_default()), 60);
    match request.option_chosen().filter(|_| request.decision.is_none()) {
        Some(number) => format!("option {number}, {answer:?}"),
        None => answer,
    }
}

pub fn say_answered(answered: &Answered, cx: &Context) -> Result<(), Stop> {
    for request in &answered.requests {
        let answer = recorded(request);
        let (number, name) = (text::line(&request.number), text::line(&request.run_name));
        let done = if request.decision.is_none() { format!("answered {number} of {name}: {answer}") } else { format!("{number} of {name} {answer}") };
        let started = request.child_name.as_ref().map(|name| format!("; started {}", text::line(name))).unwrap_or_default();
        let line = format!("{} {done}{started}", cx.out.paint.apply(Style::Good, "✓"));
        cx.out.line(&line)?;
    }
    for run in &answered.runs {
        if let Some(open) = run.pending.first() {
            cx.out.next(&format!("{}   ({} asks {} more)", decide::way(open), text::line(&run.name), run.pending.len()))?;
        } else {
            cx.out.next(&format!("adj logs -f {}", text::line(&run.name)))?;
        }
    }
    Ok(())
}

/// Shows the first of what needs the person, and takes what they type.
pub async fn next(cx: &Context) -> Ended {
    if !cx.out.interactive {
        return Err(fail_hint(words::USAGE, "adj next needs a terminal to ask on", "adj inbox lists what is open; adj reply Q1 \"…\" answers one"));
    }
    let list = cx.hub.call(&ListAttention::default()).await?;
    let left = list.total().saturating_sub(1);
    let done = if let Some(oldest) = list.requests.first() {
        let left = list.requests.iter().skip(1).map(|r| format!("{} ({})", text::line(&r.number), text::line(&r.run_name))).collect();
        next_request(oldest, left, cx).await?
    } else if let Some(run) = list.runs.first() {
        match run.attention.as_ref().is_some_and(|attention| attention.is_stop()) {
            true => next_stopped(run, cx).await?,
            false => next_ended(run, cx).await?,
        }
    } else if let Some(mention) = list.mentions.first() {
        next_message(mention, cx).await?
    } else {
        cx.out.say("nothing is open")?;
        return Ok(Exit::Done);
    };
    match (done, left) {
        (Typed::Nothing, _) => cx.out.say("nothing answered")?,
        (Typed::Ended, _) => {
            cx.out.say("nothing answered")?;
            return Err(Stop::Quiet(Exit::Interrupted));
        }
        (Typed::Done(_), 0) => cx.out.say("none left")?,
        (Typed::Done(names), left) if names.is_empty() => cx.out.say(&format!("{left} left: adj next"))?,
        (Typed::Done(names), left) => cx.out.say(&format!("{left} left: {}", names.join(", ")))?,
    }
    Ok(Exit::Done)
}

/// What came of a prompt.
enum Typed {
    /// It was dealt with. The names of what is left, where they are known.
    Done(Vec<String>),
    Nothing,
    /// The input has ended.
    Ended,
}

async fn next_request(oldest: &RequestView, left: Vec<String>, cx: &Context) -> Result<Typed, Stop> {
    cx.out.text(&look::question(oldest, cx)?)?;
    if let Some(seconds) = age::seconds_since(&oldest.expires_at, now()).filter(|s| *s < 0) {
        cx.out.line(&cx.out.paint.apply(Style::Dim, &format!("  (open for {} more)", age::short(-seconds))))?;
    }
    let answer = match asked(oldest, cx).await? {
        Said::Answer(answer) => *answer,
        Said::Nothing => return Ok(Typed::Nothing),
        Said::End => return Ok(Typed::Ended),
        Said::SettledMeanwhile(request) => {
            cx.out.say(&format!("{} was settled meanwhile: {}", text::line(&request.number), text::line(&look::settled(&request))))?;
            if !left.is_empty() {
                cx.out.next("adj next")?;
            }
            return Err(Stop::Quiet(Exit::Conflict));
        }
    };
    let answered = cx.hub.call(&AnswerRequests { answers: vec![answer] }).await?;
    for request in &answered.requests {
        let chosen = recorded(request);
        let word = if request.decision.is_none() { "answered " } else { "" };
        cx.out.line(&format!("{} {word}{}: {chosen}", cx.out.paint.apply(Style::Good, "✓"), text::line(&request.number)))?;
    }
    Ok(Typed::Done(left))
}

/// Shows a stopped run: a typed line resumes it with that resolution or choice, or cancels it.
async fn next_stopped(run: &RunView, cx: &Context) -> Result<Typed, Stop> {
    let name = text::line(&run.name);
    cx.out.line(&waiting::ending(run, cx))?;
    if let Some(checkpoint) = &run.checkpoint {
        cx.out.text(&look::left_behind(checkpoint, cx)?)?;
    }
    for choice in &run.choices {
        cx.out.line(&format!("  {:<9} {}", text::line(&choice.choice), text::line(&choice.about)))?;
    }
    waiting::confirm_run(run, cx).await?;
    let words = if run.choices.is_empty() { "" } else { ", or one of these words" };
    let Some(line) = ask(&format!("resume {name} with a resolution{words}, or cancel > "))? else { return Ok(Typed::Ended) };
    let line = line.trim();
    let (run, choices) = (run.run_id.clone(), &run.choices);
    let word = match line {
        "" => return Ok(Typed::Nothing),
        "cancel" => {
            cx.hub.call(&Cancel { run, reason: None }).await?;
            "cancelled"
        }
        line => {
            let choice = Some(line.to_owned()).filter(|line| choices.iter().any(|choice| choice.choice == *line));
            let resolution = Some(line.to_owned()).filter(|_| choice.is_none());
            cx.hub.call(&Resume { run, resolution, next_step: None, choice, env: dispatch_env() }).await?;
            "resumed"
        }
    };
    cx.out.line(&format!("{} {word} {name}", cx.out.paint.apply(Style::Good, "✓")))?;
    Ok(Typed::Done(Vec::new()))
}

/// Shows an end that the person was not notified of.
async fn next_ended(run: &RunView, cx: &Context) -> Result<Typed, Stop> {
    let name = text::line(&run.name);
    cx.out.line(&waiting::ending(run, cx))?;
    let why = run.attention.as_ref().map(state::attention_text).unwrap_or_default();
    cx.out.text(&cx.out.indented("  ", &why))?;
    waiting::confirm_run(run, cx).await?;
    match ask(&format!("Enter to go on, or retry, to start {name} again > "))? {
        None => return Ok(Typed::Ended),
        Some(line) if line.trim() == "retry" => {
            let run = cx.hub.call(&Retry { run: run.run_id.clone(), prompt: None, env: dispatch_env() }).await?;
            cx.out.line(&format!("{} started {}", cx.out.paint.apply(Style::Good, "✓"), text::line(&run.name)))?;
        }
        Some(_) => cx.out.next(&format!("adj show {name}   or   adj logs {name}"))?,
    }
    Ok(Typed::Done(Vec::new()))
}

/// Shows what is unread in a chat with a message for the person: reading it marks it. A typed line is posted there.
async fn next_message(mention: &MentionView, cx: &Context) -> Result<Typed, Stop> {
    chat::show_unread(mention, cx).await?;
    match ask("Enter to go on, or a reply > ")? {
        None => return Ok(Typed::Ended),
        Some(line) if line.trim().is_empty() => {}
        Some(line) => chat::reply(mention, line, cx).await?,
    }
    Ok(Typed::Done(Vec::new()))
}

/// What came of asking for an answer.
enum Said {
    Answer(Box<AnswerOne>),
    /// An empty line.
    Nothing,
    /// The terminal's input has ended.
    End,
    /// Somebody else answered, or its deadline came.
    SettledMeanwhile(Box<RequestView>),
}

/// Asks for the answer to a request that was shown, for as long as it is open.
async fn asked(request: &RequestView, cx: &Context) -> Result<Said, Stop> {
    let mut typed = super::typed::Typed::default();
    let mut err = std::io::stderr();
    loop {
        typed.begin();
        write!(err, "{}", decide::prompt(request)).and_then(|()| err.flush())?;
        let line = tokio::select! {
            biased;
            settled = settled(request, cx) => {
                writeln!(err)?;
                return Ok(Said::SettledMeanwhile(Box::new(settled?)));
            }
            line = typed.line_or_end() => line,
        };
        let line = line.map_err(|e| match e.kind() {
            std::io::ErrorKind::InvalidData => fail(codes::INVALID, "what was typed is not UTF-8"),
            _ => fail(words::IO, format!("cannot read the terminal: {e}")),
        })?;
        let Some(line) = line else {
            writeln!(err)?;
            return Ok(Said::End);
        };
        if line.trim().is_empty() {
            return Ok(Said::Nothing);
        }
        match decide::typed(request, &line) {
            Ok(answer) => return Ok(Said::Answer(Box::new(answer))),
            Err(usage) => cx.out.say(usage)?,
        }
    }
}

/// Waits until a request is no longer open.
async fn settled(request: &RequestView, cx: &Context) -> Result<RequestView, Stop> {
    let call = ReadRequest { message_id: request.message_id.clone(), wait_ms: SETTLED_WAIT_MS };
    loop {
        let now = cx.hub.call(&call).await?;
        if now.status != "pending" {
            return Ok(now);
        }
    }
}

/// Asks for one line on the terminal, typed after this was shown; `None` at the end of input.
pub fn ask(prompt: &str) -> Result<Option<String>, Stop> {
    let mut err = std::io::stderr().lock();
    super::typed::forget();
    write!(err, "{prompt}").and_then(|()| err.flush())?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => fail(codes::INVALID, "what was typed is not UTF-8"),
        _ => fail(words::IO, format!("cannot read the terminal: {e}")),
    })?;
    if read == 0 {
        writeln!(err)?;
        return Ok(None);
    }
    Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
}
