//! The live view of a real session as a picture, without a terminal: for the README, made by `cargo xtask picture`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    LiveArgs,
    screen::read_session,
    ticker::{Event, Signals, Ticker},
};
use crate::{
    session::Session,
    view::live::{Model, Press, Settings, Theme, draw, svg::svg},
};

/// How long each frame is shown.
const SECONDS_PER_FRAME: f64 = 3.0;

/// Makes a picture instead of showing the view.
#[derive(Args, Debug)]
pub struct PictureArgs {
    /// Write the view as SVG to FILE
    #[arg(long, value_name = "FILE", hide = true)]
    picture: Option<PathBuf>,
    /// Keys to press: `.` waits for a reading, `!` takes a frame, `<` is Enter and `>` is Tab
    #[arg(long, value_name = "KEYS", hide = true, default_value = "..!")]
    picture_keys: String,
    /// Columns and lines
    #[arg(long, value_name = "CxL", hide = true, default_value = "120x30", value_parser = parse_size)]
    picture_size: (u16, u16),
}

impl PictureArgs {
    /// True when a picture is asked for.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.picture.is_some()
    }
}

fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let number = |text: &str| text.parse().ok().filter(|number| (10..=500).contains(number));
    text.split_once('x')
        .and_then(|(columns, lines)| Some((number(columns)?, number(lines)?)))
        .ok_or_else(|| "columns x lines, each from 10 to 500".to_owned())
}

/// Presses the keys, and writes the frames that they ask for.
///
/// # Errors
/// When a signal comes or the target ends before the last key, or the file cannot be written.
pub async fn take(args: &LiveArgs, session: &mut Session, signals: Signals) -> Result<()> {
    let Some(path) = &args.picture.picture else { return Ok(()) };
    let size = args.picture.picture_size;
    let settings = Settings { interval: args.interval, theme: Theme { color: true }, size };
    let mut ticker = Ticker::new(session, args.interval, signals)?;
    let mut model = Model::new(read_session(session), settings);
    let mut frames = Vec::new();
    for key in args.picture.picture_keys.chars() {
        match key {
            '.' => {
                next_reading(&mut ticker, session).await?;
                model.take(read_session(session));
            }
            '!' => {
                let mut frame = Buffer::empty(Rect::new(0, 0, size.0, size.1));
                draw(&model, &mut frame);
                frames.push(frame);
            }
            other => {
                model.press(match other {
                    '<' => Press::Enter,
                    '>' => Press::Tab,
                    other => Press::Char(other),
                });
            }
        }
    }
    fs::write(path, svg(&frames, SECONDS_PER_FRAME))
        .with_context(|| format!("cannot write to {}", path.display()))
}

async fn next_reading(ticker: &mut Ticker, session: &mut Session) -> Result<()> {
    loop {
        match ticker.next(session.patience()).await {
            Event::Pump | Event::Child => session.pump()?,
            Event::Signal(_) => bail!("ended by a signal; no picture was made"),
            Event::Reading => {
                session.snapshot_with_pairs()?;
                if session.is_over() {
                    bail!("the target has ended; no picture was made");
                }
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("120x36"), Ok((120, 36)));
        for wrong in ["120", "x", "5x5", "120x36x2", "99999x10"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
