//! Attending: `inbox`, `reply`, `next`.

use super::args::{InboxArgs, ReplyArgs};
use super::context::{Context, now, text_argument};
use super::exit::{Exit, words};
use super::out::{Ended, Stop, fail, fail_hint};
use super::style::Style;
use super::table::{Cell, Column, painted, plain, render};
use super::{age, decide, look};
use crate::text;
use crate::view::{
    AnswerOne, AnswerRequests, Answered, ListMentions, ListRequests, Mentions, ReadRequest, RequestList, RequestView, codes, unread_text,
};
use adjutant_core::{RequestId, RequestNo};
use std::io::{BufRead, Write};

/// Columns of a chat's title beside what was said in it.
const TITLE_COLUMNS_MAX: usize = 24;

/// Lists questions, oldest first, and what in chats is for the person.
pub async fn inbox(args: &InboxArgs, cx: &Context) -> Ended {
    let list = cx.hub.call(&ListRequests { run: args.run.clone(), all: args.all, limit: None }).await?;
    let mentions = match args.run {
        None => cx.hub.call(&ListMentions::default()).await?,
        Some(_) => Mentions::default(),
    };
    if cx.out.json {
        cx.out.inbox(&list, &mentions)?;
        return Ok(Exit::Done);
    }
    if list.requests.is_empty() && mentions.mentions.is_empty() {
        cx.out.say("nothing is open")?;
        return Ok(Exit::Done);
    }
    if !list.requests.is_empty() {
        questions(&list, cx)?;
    }
    if !mentions.mentions.is_empty() {
        named_in(&mentions, cx)?;
    }
    let oldest = list.requests.iter().find(|r| r.status == "pending");
    match (oldest, mentions.mentions.first()) {
        (Some(_), _) if cx.out.interactive => cx.out.next("adj next")?,
        (Some(oldest), _) => cx.out.next(&decide::way(oldest))?,
        (None, Some(mention)) => cx.out.next(&format!("adj chat show {}", mention.chat_id))?,
        (None, None) => {}
    }
    Ok(Exit::Done)
}

/// Prints what in chats is for the person, a line for each chat.
fn named_in(mentions: &Mentions, cx: &Context) -> Result<(), Stop> {
    let since = if cx.out.terminal { "AGE" } else { "AT" };
    let rows: Vec<Vec<Cell>> = mentions
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
    if mentions.more {
        cx.out.say("… and more: adj chat ls")?;
    }
    Ok(())
}

fn questions(list: &RequestList, cx: &Context) -> Result<(), Stop> {
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
    if list.more > 0 {
        cx.out.say(&format!("… {} more", list.more))?;
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

/// Asks the user the oldest open question.
pub async fn next(cx: &Context) -> Ended {
    if !cx.out.interactive {
        return Err(fail_hint(words::USAGE, "adj next needs a terminal to ask on", "adj inbox lists what is open; adj reply Q1 \"…\" answers one"));
    }
    let open = cx.hub.call(&ListRequests::default()).await?.requests;
    let Some(oldest) = open.iter().find(|request| request.status == "pending") else {
        cx.out.say("nothing is open")?;
        return Ok(Exit::Done);
    };
    cx.out.text(&look::question(oldest, cx)?)?;
    if let Some(seconds) = age::seconds_since(&oldest.expires_at, now()).filter(|s| *s < 0) {
        cx.out.line(&cx.out.paint.apply(Style::Dim, &format!("  (open for {} more)", age::short(-seconds))))?;
    }
    let Some(line) = ask(decide::prompt(oldest))? else {
        cx.out.say("nothing answered")?;
        return Err(Stop::Quiet(Exit::Interrupted));
    };
    if line.trim().is_empty() {
        cx.out.say("nothing answered")?;
        return Ok(Exit::Done);
    }
    let answer = decide::typed(oldest, &line).map_err(decide::mistyped)?;
    let answered = cx.hub.call(&AnswerRequests { answers: vec![answer] }).await?;
    for request in &answered.requests {
        let chosen = recorded(request);
        let word = if request.decision.is_none() { "answered " } else { "" };
        cx.out.line(&format!("{} {word}{}: {chosen}", cx.out.paint.apply(Style::Good, "✓"), text::line(&request.number)))?;
    }
    let left: Vec<String> = open
        .iter()
        .filter(|r| r.message_id != oldest.message_id)
        .map(|r| format!("{} ({})", text::line(&r.number), text::line(&r.run_name)))
        .collect();
    if left.is_empty() {
        cx.out.say("none left")?;
    } else {
        cx.out.say(&format!("{} left: {}", left.len(), left.join(", ")))?;
    }
    Ok(Exit::Done)
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
