//! The terminal while `adj top` uses it: raw, on the alternate screen. It is restored on every end.

use crate::cli::symbols;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, style};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use std::io::{self, Stdout};
use std::sync::Once;

/// The size of a terminal that does not state it.
const COLUMNS_DEFAULT: u16 = 80;
const ROWS_DEFAULT: u16 = 24;

/// The terminal's screen. Dropping it restores the terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    area: Rect,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// The terminal cannot be set up; it is as before then.
    pub(super) fn open() -> io::Result<Self> {
        restore_on_panic();
        // Whether there are colours is already decided.
        style::force_color_output(true);
        enable_raw_mode()?;
        let area = size();
        match execute!(
            io::stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            cursor::Hide
        )
        .and_then(|()| cleared(area))
        {
            Ok(terminal) => Ok(Self { terminal, area }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws, in the terminal's present size.
    ///
    /// # Errors
    /// The terminal cannot be written to.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let area = size();
        if area != self.area {
            self.terminal = cleared(area)?;
            self.area = area;
        }
        let with_symbols = |frame: &mut Frame<'_>| {
            draw(frame);
            for cell in &mut frame.buffer_mut().content {
                if let Some(symbol) = symbols::cell(cell.symbol()) {
                    cell.set_char(symbol);
                }
            }
        };
        self.terminal.draw(with_symbols).map(drop)
    }
}

/// Returns a screen of a size, on a cleared terminal. Clearing it by ratatui would ask the terminal
/// for the position of its cursor, and wait for the answer among the keys.
fn cleared(area: Rect) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    execute!(io::stdout(), Clear(ClearType::All))?;
    Terminal::with_options(
        CrosstermBackend::new(io::stdout()),
        TerminalOptions {
            viewport: Viewport::Fixed(area),
        },
    )
}

/// Returns the size of the terminal that standard output is, which need not be the controlling one.
fn size() -> Rect {
    match rustix::termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Rect::new(0, 0, size.ws_col, size.ws_row),
        _ => Rect::new(0, 0, COLUMNS_DEFAULT, ROWS_DEFAULT),
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Makes a panic restore the terminal before it prints its message.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

fn restore() {
    let left = execute!(
        io::stdout(),
        DisableBracketedPaste,
        cursor::Show,
        LeaveAlternateScreen
    );
    if let Err(error) = disable_raw_mode().and(left) {
        tracing::debug!(%error, "the terminal is gone");
    }
}
