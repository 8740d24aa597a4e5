//! Chats: posting, waking a reader, reading, searching, and the hub's memory.

use super::{Bench, in_lab};
use crate::lab::{Lab, Result, monotonic_ns, pss_mb};
use crate::mcp::Mcp;
use crate::stats::{Row, Samples};
use adjutant_api::view::{
    Activity, CarriedChat, CarriedEntry, CarriedMember, ChatView, ImportChat, ListChats, Search,
    ShowChat, StartChat,
};
use adjutant_net::hub_client::Client;
use serde_json::json;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const POSTERS: usize = 50;
/// Number of entries in one part of an import.
const PART: usize = 500;
/// Number of chats that are imported concurrently.
const LOADERS: usize = 8;
/// The time of imported messages, in milliseconds since 1970.
const AT: i64 = 1_763_686_923_004;
const MESSAGES_EACH: i64 = 1_000;
/// Words that occur in every message, in one of 100, and in one of 50,000.
const WORDS: [(&str, i64); 3] = [("everywhere", 1), ("sometimes", 100), ("hardly", 50_000)];

/// Measures posts of one client, then of fifty clients at once in one chat.
pub async fn post(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let mut alone = Samples::default();
        {
            let mut server = Mcp::parent(&lab, "bench")?;
            let chat = server.call("start_chat", json!({"title": "alone"}))?["chat_id"].clone();
            for number in 0..bench.scale.posts {
                let start = Instant::now();
                server.call("send_message", json!({"chat_id": chat, "message": format!("message {number} of one who posts alone")}))?;
                alone.push(start.elapsed());
            }
        }
        let chat =
            client.call(&StartChat { title: "crowd".to_owned(), participants: vec!["client:bench".to_owned()], ..StartChat::default() }).await?;
        let (id, each) = (chat.chat_id, bench.scale.posts_each);
        let posting = lab.clone();
        let (crowd, firsts) = tokio::task::spawn_blocking(move || crowd(&posting, id, each)).await??;
        let wrong = out_of_order(&client, id, each).await?;
        let count = POSTERS * each;
        Ok(vec![
            Row::latency("post in a chat, durable, through MCP", &alone, Some(bench.fdatasync_ms()), bench.fdatasync_ms() + 0.5),
            Row::number(&format!("post by {POSTERS} adj mcp processes in one chat, p99"), crowd.p99(), "ms", 20.0, true),
            Row::plain("  the same, p50", format!("{:.2} ms", crowd.p50()), String::new()),
            Row::plain(
                "  the first post of each, which it has not done before",
                format!("{:.2} ms", firsts.p50()),
                format!("{:.2} ms", firsts.p99()),
            ),
            #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
            Row::number(&format!("  lost, doubled or out of order of {count}"), wrong as f64, "", 0.0, true),
        ])
    })
    .await
}

/// Returns the times of all posts, and of each poster's first post.
fn crowd(lab: &Arc<Lab>, chat: i64, each: usize) -> Result<(Samples, Samples)> {
    let begin = Arc::new(Barrier::new(POSTERS));
    let posters: Vec<_> = (0..POSTERS)
        .map(|poster| {
            let (lab, begin) = (lab.clone(), begin.clone());
            std::thread::spawn(move || -> Result<Vec<Duration>> {
                let server = Mcp::parent(&lab, "bench")
                    .and_then(|mut server| server.call("list_chats", json!({})).map(|_| server));
                begin.wait();
                let mut server = server?;
                (0..each)
                    .map(|number| {
                        let start = Instant::now();
                        server.call(
                            "send_message",
                            json!({"chat_id": chat, "message": format!("{poster} {number}")}),
                        )?;
                        Ok(start.elapsed())
                    })
                    .collect()
            })
        })
        .collect();
    let (mut samples, mut firsts) = (Samples::default(), Samples::default());
    for poster in posters {
        let times = poster.join().map_err(|_| "a poster panicked")??;
        times.iter().take(1).for_each(|time| firsts.push(*time));
        times.into_iter().for_each(|time| samples.push(time));
    }
    Ok((samples, firsts))
}

/// Counts missing and misplaced messages: numbers have no gaps, and each poster's order is kept.
async fn out_of_order(client: &Client, chat: i64, each: usize) -> Result<usize> {
    let mut next = [0_usize; POSTERS];
    let (mut wrong, mut after) = (0, 0);
    loop {
        let page = client
            .call(&ShowChat {
                chat_id: chat,
                after: Some(after),
                limit: Some(1_000),
                ..ShowChat::default()
            })
            .await?;
        for entry in &page.messages {
            let own = entry.text.split_once(' ').and_then(|(poster, number)| {
                Some((poster.parse::<usize>().ok()?, number.parse::<usize>().ok()?))
            });
            let in_place = entry.seq == after + 1
                && own.is_some_and(|(poster, number)| next.get(poster) == Some(&number));
            wrong += usize::from(!in_place);
            after = entry.seq;
            if let Some(expected) = own.and_then(|(poster, _)| next.get_mut(poster)) {
                *expected += 1;
            }
        }
        if page.more == 0 || page.messages.is_empty() {
            return Ok(wrong
                + next
                    .iter()
                    .map(|posted| each.abs_diff(*posted))
                    .sum::<usize>());
        }
    }
}

/// Measures the time from a post to the return of another participant's blocked call.
pub async fn wake(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let count = bench.scale.posts;
        let mut poster = Mcp::parent(&lab, "bench")?;
        let chat = poster.call("start_chat", json!({"title": "updates"}))?["chat_id"].clone();
        let id = chat.as_i64().ok_or("no chat_id")?;
        let (told, returned) = std::sync::mpsc::channel();
        let reading = lab.clone();
        let reader = std::thread::spawn(move || -> Result<()> {
            let mut server = Mcp::parent(&reading, "bench")?;
            for after in 0..count {
                let page = server.call(
                    "show_chat",
                    json!({"chat_id": id, "after": after, "wait_s": 30}),
                )?;
                told.send((page["messages"][0]["message"].clone(), monotonic_ns()))?;
            }
            Ok(())
        });
        let client = lab.client();
        let mut samples = Samples::default();
        for number in 0..count {
            // After this, the reader is in its blocked call.
            while !client
                .call(&ShowChat {
                    chat_id: id,
                    peek: true,
                    ..ShowChat::default()
                })
                .await?
                .chat
                .participants
                .iter()
                .any(|one| one.presence == Activity::Reading)
            {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let text = format!("update {number}");
            let from = monotonic_ns();
            poster.call("send_message", json!({"chat_id": chat, "message": text}))?;
            let (message, at) = returned.recv_timeout(Duration::from_secs(20))?;
            if message != text {
                return Err(format!("the reader got {message}, not {text:?}").into());
            }
            samples.push_ns(at.saturating_sub(from));
        }
        reader.join().map_err(|_| "the reader panicked")??;
        Ok(vec![Row::latency(
            "from a post until a blocked reader has it, through MCP",
            &samples,
            Some(bench.fdatasync_ms()),
            1.0 + bench.fdatasync_ms(),
        )])
    })
    .await
}

/// Measures showing the newest messages of a short and of a long chat.
pub async fn show(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        // As the person, because only the person can see an imported chat.
        let client = lab.client();
        let mut rows = Vec::new();
        let mut medians = Vec::new();
        for messages in bench.scale.shown {
            let chat = load(&client, "long", *messages, 0).await?.chat_id;
            let mut samples = Samples::default();
            for _ in 0..bench.scale.posts {
                let start = Instant::now();
                client
                    .call(&ShowChat {
                        chat_id: chat,
                        limit: Some(20),
                        ..ShowChat::default()
                    })
                    .await?;
                samples.push(start.elapsed());
            }
            medians.push(samples.p50());
            let floor = bench.floors.socket_round_trip.p50();
            rows.push(Row::latency(
                &format!("newest 20 messages of a chat of {messages}, on the hub's API"),
                &samples,
                Some(floor),
                2.0,
            ));
        }
        if let [short, .., long] = medians[..] {
            rows.push(Row::number(
                "  the long one's time as a part of the short one's",
                long / short,
                "",
                1.5,
                true,
            ));
        }
        Ok(rows)
    })
    .await
}

/// Measures the hub's memory with many chats, and searches in all of them.
pub async fn search(bench: &Bench) -> Result<Vec<Row>> {
    in_lab(bench, "", |lab| async move {
        let client = lab.client();
        let mut rows = Vec::new();
        let mut loaded = 0;
        let start = Instant::now();
        for (chats, target_mb) in bench.scale.chats {
            let mut loading = JoinSet::new();
            for lane in 0..LOADERS {
                let (client, from, to) = (client.clone(), loaded, *chats);
                loading.spawn(async move {
                    for number in (from..to).filter(|number| {
                        usize::try_from(*number).is_ok_and(|number| number % LOADERS == lane)
                    }) {
                        load(
                            &client,
                            &format!("chat {number}"),
                            MESSAGES_EACH,
                            number * MESSAGES_EACH,
                        )
                        .await?;
                    }
                    Result::Ok(())
                });
            }
            while let Some(done) = loading.join_next().await {
                done??;
            }
            loaded = *chats;
            use_chats(&client).await?;
            let what = format!("memory, PSS: hub with {loaded} chats of {MESSAGES_EACH} messages");
            rows.push(Row::number(
                &what,
                pss_mb(lab.hub().await?.pid)?,
                "MB",
                *target_mb,
                true,
            ));
        }
        let all = loaded * MESSAGES_EACH;
        eprintln!(
            "{all} messages imported in {:.1} s",
            start.elapsed().as_secs_f64()
        );
        let mut best = Samples::default();
        for (word, every) in WORDS {
            let mut newest = Samples::default();
            for _ in 0..bench.scale.searches {
                newest.push(time_search(&client, word, false, (all / every).min(20)).await?);
                best.push(time_search(&client, word, true, 1).await?);
            }
            let what =
                format!("newest 20 of {all} messages with a word that 1 in {every} contains");
            rows.push(Row::latency(
                &what,
                &newest,
                Some(bench.floors.socket_round_trip.p50()),
                5.0,
            ));
        }
        rows.push(Row::number(
            &format!("best 20 of {all} messages, p99 over these words"),
            best.p99(),
            "ms",
            100.0,
            true,
        ));
        rows.push(Row::plain(
            "  the same, p50",
            format!("{:.2} ms", best.p50()),
            String::new(),
        ));
        Ok(rows)
    })
    .await
}

/// Uses chats as people do, so that the hub's memory includes its caches.
async fn use_chats(client: &Client) -> Result<()> {
    for chat in client
        .call(&ListChats {
            limit: Some(1_000),
            ..ListChats::default()
        })
        .await?
        .chats
    {
        client
            .call(&ShowChat {
                chat_id: chat.chat_id,
                ..ShowChat::default()
            })
            .await?;
    }
    time_search(client, WORDS[0].0, true, 1).await.map(drop)
}

/// Measures a search. It must be complete and have at least `least` hits.
async fn time_search(client: &Client, word: &str, best: bool, least: i64) -> Result<Duration> {
    let call = Search {
        query: word.to_owned(),
        within: vec!["chats".to_owned()],
        best,
        limit: Some(20),
        ..Search::default()
    };
    let start = Instant::now();
    let found = client.call(&call).await?;
    let time = start.elapsed();
    let hits = i64::try_from(found.hits.len())?;
    if hits < least || found.incomplete {
        return Err(format!(
            "{word}: {hits} hits of at least {least}, broken off: {}",
            found.incomplete
        )
        .into());
    }
    Ok(time)
}

/// Imports a chat in which the client `bench` takes part; its messages are numbered from `first`
/// on.
async fn load(client: &Client, title: &str, messages: i64, first: i64) -> Result<ChatView> {
    const FILLER: [&str; 12] = [
        "parser", "index", "server", "latency", "branch", "review", "schema", "cursor", "window",
        "socket", "budget", "report",
    ];
    let head = CarriedChat {
        format: 1,
        kind: "chat".to_owned(),
        title: title.to_owned(),
        window_chars: 30_000,
        turns_max: 6,
        started_by: "person".to_owned(),
        started_name: "person".to_owned(),
        members: vec![CarriedMember {
            who: "client:bench".to_owned(),
            name: "bench".to_owned(),
            joined_at: Some(AT),
            ..CarriedMember::default()
        }],
        ..CarriedChat::default()
    };
    let mut chat = client
        .call(&ImportChat {
            head: Some(head),
            more: messages > 0,
            ..ImportChat::default()
        })
        .await?;
    let mut part = Vec::with_capacity(PART);
    for seq in 1..=messages {
        let number = first + seq;
        let mut text = format!("message {number}");
        for step in 0..12_i64 {
            let at = usize::try_from((number * 7 + step * step * 5) % 12)?;
            text.push(' ');
            text.push_str(FILLER[at]);
        }
        for (word, every) in WORDS {
            if number % every == 0 {
                text.push(' ');
                text.push_str(word);
            }
        }
        part.push(CarriedEntry {
            seq,
            kind: "message".to_owned(),
            author: "person".to_owned(),
            name: "person".to_owned(),
            text,
            at: AT,
            ..CarriedEntry::default()
        });
        if part.len() == PART || seq == messages {
            chat = client
                .call(&ImportChat {
                    chat_id: Some(chat.chat_id),
                    entries: std::mem::take(&mut part),
                    more: seq < messages,
                    ..ImportChat::default()
                })
                .await?;
        }
    }
    if chat.last_seq != messages {
        return Err(format!("{} of {messages} messages were imported", chat.last_seq).into());
    }
    Ok(chat)
}
