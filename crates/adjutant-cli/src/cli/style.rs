//! Colours. In this order: --color, `NO_COLOR`, `CLICOLOR_FORCE` or `FORCE_COLOR`, `CLICOLOR=0` and
//! `TERM=dumb`, whether the output is a terminal.

/// The value of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    #[default]
    Auto,
    Always,
    Never,
}

/// The environment variables about colours.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColorEnv {
    pub no_color: bool,
    pub force: bool,
    /// `CLICOLOR=0`: no colours unless forced.
    pub off: bool,
    pub dumb: bool,
}

/// The role of a piece of text. Colour is never the only sign: there is always a glyph or a word
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Attention,
}

/// Whether text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(super) const OFF: Self = Self(false);

    /// Decides whether an output is coloured.
    #[must_use]
    pub(super) fn decide(choice: ColorChoice, env: ColorEnv, is_terminal: bool) -> Self {
        Self(match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if env.no_color => false,
            ColorChoice::Auto if env.force => true,
            ColorChoice::Auto => is_terminal && !env.dumb && !env.off,
        })
    }

    /// Colours text that is already sanitized.
    #[must_use]
    pub(super) fn apply(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => return text.to_owned(),
            Style::Strong => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Bad => "31",
            Style::Attention => "33",
        };
        if self.0 && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_flag_wins_over_environment_and_terminal() {
        let env = |no_color, force, dumb| ColorEnv {
            no_color,
            force,
            off: false,
            dumb,
        };
        let on = |choice, env, tty| Paint::decide(choice, env, tty) != Paint::OFF;
        assert!(on(ColorChoice::Always, env(true, false, true), false));
        assert!(!on(ColorChoice::Never, env(false, true, false), true));
        assert!(!on(ColorChoice::Auto, env(true, true, false), true));
        assert!(on(ColorChoice::Auto, env(false, true, true), false));
        assert!(!on(ColorChoice::Auto, env(false, false, true), true));
        assert!(on(ColorChoice::Auto, env(false, false, false), true));
        assert!(!on(ColorChoice::Auto, env(false, false, false), false));
        let off = |force| ColorEnv {
            off: true,
            ..env(false, force, false)
        };
        assert!(
            !on(ColorChoice::Auto, off(false), true) && on(ColorChoice::Auto, off(true), false)
        );
    }
}
