//! The full screen: takes the terminal, gives it back whatever happens, and runs the view on it.

use std::{
    fs::OpenOptions,
    io::{self, BufWriter, IsTerminal as _, Stdout, Write as _, stdin, stdout},
    mem::ManuallyDrop,
    path::PathBuf,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::{Context as _, Result};
use crossterm::{
    cursor::Show,
    event::{Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, read},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use nix::{
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, raise, sigaction},
    unistd::Pid,
};
use ratatui::{Terminal, backend::CrosstermBackend, layout::Rect};
use tokio::{signal::unix::SignalKind, sync::mpsc};

use super::{
    LiveArgs, output,
    ticker::{Event, Signals, Ticker},
};
use crate::{
    clock::now_ns,
    probe::{self, State},
    session::Session,
    view::live::{self, Effect, HookRow, Model, Press, Reading, Settings, Theme},
};

/// A screenful goes out in one piece: less flicker, fewer syscalls.
const BUFFER: usize = 64 * 1024;

/// True when the full screen can be used: a person sits at both ends, and nothing else was asked for.
#[must_use]
pub fn is_wanted(args: &LiveArgs) -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // Diagnostics on the same terminal would be drawn over.
    let has_log = log::max_level() != log::LevelFilter::Off && io::stderr().is_terminal();
    !args.plain
        && args.output.output.is_none()
        && args.output.format.is_none()
        && !is_dumb
        && !has_log
        && stdin().is_terminal()
        && stdout().is_terminal()
}

/// The terminal while it is ours. Its drop gives it back.
struct Screen {
    /// Never dropped, since its drop panics on a terminal that has hung up (it says on stderr that the cursor
    /// cannot be shown); there is one for each run, and ours gives everything back.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    fn enter() -> Result<Self> {
        restore_on_panic();
        let taken = take_terminal();
        if taken.is_err() {
            give_terminal_back();
        }
        taken.context("cannot use the terminal; --plain prints lines")?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(BUFFER, stdout()));
        match Terminal::new(backend) {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                give_terminal_back();
                Err(error).context("cannot use the terminal; --plain prints lines")
            }
        }
    }

    fn draw(&mut self, model: &mut Model) -> Result<()> {
        self.terminal
            .draw(|frame| {
                let area = frame.area();
                model.resize(area.width, area.height);
                live::draw(model, frame.buffer_mut());
            })
            .context("cannot draw")?;
        Ok(())
    }

    /// Takes the terminal again, whatever was done to it meanwhile.
    fn take_again(&mut self) -> Result<()> {
        give_terminal_back();
        self.begin_again()
    }

    /// An empty screen, so that all of it is drawn next. (`Terminal::clear` asks the terminal where the cursor is,
    /// and the answer would go to the thread that reads keys.)
    fn begin_again(&mut self) -> Result<()> {
        take_terminal()?;
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))?;
        Ok(())
    }

    /// Stops like any other program on Ctrl-Z; returns when this process is continued.
    fn suspend(&mut self) -> Result<()> {
        give_terminal_back();
        stop_until_continued()?;
        self.begin_again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_terminal_back();
    }
}

/// The terminal is ours.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

fn take_terminal() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen)
}

/// Never fails: a terminal that is gone needs nothing. Only once for each time that it was taken: leaving the
/// alternate screen again would put the cursor over what was written since.
fn give_terminal_back() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = stdout().flush();
    let _ = disable_raw_mode();
}

/// A message of a panic on the alternate screen would be lost with it.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_terminal_back();
            before(panic);
        }));
    });
}

/// The default action of SIGTSTP. In an orphaned process group the kernel leaves it out (`get_signal`,
/// kernel/signal.c): then nobody could continue us.
fn stop_until_continued() -> Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    let handler = unsafe { sigaction(Signal::SIGTSTP, &default) }.context("SIGTSTP")?;
    let stopped = raise(Signal::SIGTSTP);
    // SAFETY: puts back the handler that was there, tokio's, which may run at any time.
    unsafe { sigaction(Signal::SIGTSTP, &handler) }.context("SIGTSTP")?;
    stopped.context("cannot stop")
}

/// Keys and sizes, from a thread of their own: reading half an escape sequence waits for the other half.
///
/// The thread ends with the process. `None` is the end of the terminal.
fn inputs() -> Result<mpsc::UnboundedReceiver<Option<Input>>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::Builder::new()
        .name("observer-keys".to_owned())
        .spawn(move || {
            loop {
                let input = read().ok();
                let is_end = input.is_none();
                if sender.send(input).is_err() || is_end {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(receiver)
}

/// The key as the view knows it.
fn press(key: KeyEvent) -> Option<Press> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    Some(match key.code {
        KeyCode::Char(c) if key.modifiers.contains(KeyModifiers::CONTROL) => Press::Ctrl(c),
        KeyCode::Char(_) if key.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Press::Char(c),
        KeyCode::Up => Press::Up,
        KeyCode::Down => Press::Down,
        KeyCode::PageUp => Press::PageUp,
        KeyCode::PageDown => Press::PageDown,
        KeyCode::Home => Press::Home,
        KeyCode::End => Press::End,
        KeyCode::Enter => Press::Enter,
        KeyCode::Esc => Press::Esc,
        KeyCode::Tab => Press::Tab,
        KeyCode::BackTab => Press::BackTab,
        KeyCode::Backspace => Press::Backspace,
        _ => return None,
    })
}

/// The signals that the screen takes itself: it gives the terminal back while it is stopped.
pub fn signals() -> [SignalKind; 2] {
    [SignalKind::from_raw(libc::SIGTSTP), SignalKind::from_raw(libc::SIGCONT)]
}

/// Shows the session until the user quits, a signal comes, or the count is reached. `signals` has [`signals`], so that
/// none of them leaves the terminal as it is.
///
/// # Errors
/// When the terminal or the session fails. The terminal is given back before this returns.
pub async fn watch(
    args: &LiveArgs,
    session: &mut Session,
    signals: Signals,
    may_be_empty: bool,
) -> Result<()> {
    let mut ticker = Ticker::new(session, args.interval, signals)?;
    let mut screen = Screen::enter()?;
    let mut inputs = inputs()?;
    let settings = Settings {
        interval: args.interval,
        theme: Theme { color: output::wants_color(args.output.color, false) },
        size: (0, 0),
    };
    let mut model = Model::new(read_session(session), settings);
    let mut readings = 0;
    screen.draw(&mut model)?;
    loop {
        let mut has_changed = true;
        tokio::select! {
            input = inputs.recv() => {
                let Some(Some(input)) = input else { return Ok(()) };
                let effect = match input {
                    Input::Key(key) => press(key).map_or(Effect::None, |press| model.press(press)),
                    _ => Effect::None,
                };
                if !perform(effect, &mut model, &mut screen, &mut ticker)? {
                    return Ok(());
                }
            }
            event = ticker.next(session.patience()) => match event {
                Event::Pump | Event::Child => {
                    session.pump()?;
                    has_changed = false;
                }
                Event::Signal(libc::SIGTSTP) => screen.suspend()?,
                Event::Signal(libc::SIGCONT) => screen.take_again()?,
                Event::Signal(_) => return Ok(()),
                // What was shown last stays when nobody is left.
                Event::Reading if model.has_ended() => has_changed = false,
                Event::Reading => {
                    session.snapshot_with_pairs()?;
                    model.take(read_session(session));
                    readings += 1;
                    if args.count.is_some_and(|count| readings >= count) {
                        return Ok(());
                    }
                    if session.is_over() && !may_be_empty {
                        model.end();
                    }
                }
            }
        }
        if has_changed {
            screen.draw(&mut model)?;
        }
    }
}

/// Does what the view asks for; false to end.
fn perform(
    effect: Effect,
    model: &mut Model,
    screen: &mut Screen,
    ticker: &mut Ticker,
) -> Result<bool> {
    match effect {
        Effect::None => {}
        Effect::Quit => return Ok(false),
        // The whole group, as the terminal would without raw mode: also a sudo or a script that started us.
        // Our own part comes back as an event.
        Effect::Suspend => kill(Pid::from_raw(0), Signal::SIGTSTP).context("cannot stop")?,
        Effect::Redraw => screen.take_again()?,
        Effect::Interval(interval) => ticker.set_interval(interval),
        Effect::Export => {
            let said = match export(model) {
                Ok(path) => format!("written to {}", path.display()),
                Err(error) => format!("{error:#}"),
            };
            model.say(said);
        }
    }
    Ok(true)
}

/// Writes what is shown into a new file in the working folder.
fn export(model: &Model) -> Result<PathBuf> {
    let folder = std::env::current_dir().context("cannot tell the working folder")?;
    let stamp = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    let name = format!("observer-{}-{stamp}.csv", model.tab().name().to_lowercase());
    let path = folder.join(name);
    // Never through a link that lies there already: this program often runs as root.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| format!("cannot write to {}", path.display()))?;
    file.write_all(&live::csv(model))
        .with_context(|| format!("cannot write to {}", path.display()))?;
    Ok(path)
}

/// What the session says now, as of its last snapshot.
#[must_use]
pub fn read_session(session: &Session) -> Reading {
    let runs = probe::runs(session.probe().cpus());
    let report = session.report();
    let status = session.probe().status();
    let hooks = status.iter().zip(&report.header.hooks).map(|(status, line)| {
        let stats = status.is_active().then(|| session.probe().stats(status)).flatten();
        HookRow {
            line: line.clone(),
            instructions: match status.state {
                State::Active(instructions) => instructions,
                State::Off(_) | State::Absent(_) | State::Refused(..) => None,
            },
            runs: runs[status.hook.index],
            run_ns: stats.and_then(|stats| stats.run_time_ns.checked_div(stats.run_count)),
        }
    });
    let hooks = hooks.collect();
    Reading { now_ns: now_ns(), report, hooks }
}
