//! `adj budget`: shows the budget of a run, and raises it.

use crate::cli::args::BudgetArgs;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::out::CommandResult;
use crate::cli::style::Style;
use crate::cli::table::{Cell, Column, painted, plain, render};
use crate::text;
use crate::view::{BudgetView, ChangeBudget};

/// Shows the budgets on which a run draws, after raising them if wanted.
pub(crate) async fn budget(args: &BudgetArgs, cx: &Context) -> CommandResult {
    let read = ChangeBudget {
        run: args.run.clone(),
        add: None,
    };
    let before = if args.add.is_some() {
        cx.hub.call(&read).await?.cost.budgets
    } else {
        Vec::new()
    };
    let run = cx
        .hub
        .call(&ChangeBudget {
            run: args.run.clone(),
            add: args.add.clone(),
        })
        .await?;
    if cx.out.json {
        cx.out.print_json(&run)?;
        return Ok(Exit::Done);
    }
    let name = text::line(&run.identity.name);
    if let Some(add) = &args.add {
        let done = cx.out.paint.apply(Style::Good, "✓");
        let is_new = |budget: &&BudgetView| before.iter().all(|other| other.kind != budget.kind);
        let mut limits_set = 0;
        for budget in run.cost.budgets.iter().filter(is_new) {
            limits_set += 1;
            let amount = budget.amount_text(budget.amount);
            cx.out.print_line(&format!(
                "{done} limited {name} to {amount} of {}, which it had no limit of",
                text::line(budget.kind.as_str())
            ))?;
        }
        if add.matches('=').count() > limits_set {
            cx.out
                .print_line(&format!("{done} raised the budget of {name}"))?;
        }
        for budget in run.cost.budgets.iter().filter(|budget| budget.left == 0) {
            let of = text::line(&budget.of);
            cx.out.print_message(&format!(
                "the budget of {} is still used up: adj budget {of} --add {}",
                text::line(budget.kind.as_str()),
                budget.example()
            ))?;
        }
    }
    if run.cost.budgets.is_empty() {
        cx.out.print_message(&format!(
            "{name} has no budget; to set a limit: adj budget {name} --add cost=5"
        ))?;
        return Ok(Exit::Done);
    }
    let columns = [
        Column::always("BUDGET"),
        Column::always("USED"),
        Column::always("OF"),
        Column::always("RESERVED"),
        Column::always("LEFT"),
        Column::optional("RUN", 1),
        Column::optional("NOTE", 0),
    ];
    let rows: Vec<Vec<Cell>> = run.cost.budgets.iter().map(row).collect();
    cx.out
        .print_text(&render(&columns, &rows, cx.out.columns, cx.out.paint))?;
    let example = run
        .cost
        .budgets
        .iter()
        .min_by_key(|budget| u16::MAX - budget.used_percent)
        .map_or("cost=5", BudgetView::example);
    cx.out.suggest(&format!(
        "adj budget {name} --add {example}   or   adj show {name}"
    ))?;
    Ok(Exit::Done)
}

fn row(budget: &BudgetView) -> Vec<Cell> {
    let note = [
        budget.hard.then(|| "hard".to_owned()),
        budget
            .unknown
            .as_ref()
            .map(|why| format!("not all is known: {why}")),
    ];
    vec![
        painted(budget.kind.as_str(), Style::Strong),
        painted(
            &budget.used_text(),
            if budget.nearly_used {
                Style::Attention
            } else {
                Style::Good
            },
        ),
        plain(&budget.amount_text(budget.amount)),
        plain(&if budget.reserved == 0 {
            "–".to_owned()
        } else {
            budget.amount_text(budget.reserved)
        }),
        plain(&budget.amount_text(budget.left)),
        plain(&budget.of),
        plain(&note.into_iter().flatten().collect::<Vec<_>>().join(", ")),
    ]
}
