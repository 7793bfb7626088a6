//! How results come back from a test kernel: frames on a serial port that carries nothing else.
//!
//! A frame is a header line, a payload of the length that it names, and a line feed:
//!
//! ```text
//! frame KIND CASE LENGTH PATH\n
//! payload\n
//! ```
//!
//! `PATH` is empty except for files. Lengths, not markers, delimit the payload: a test may print what
//! it likes. The port belongs to the guest's init alone, so that no kernel message can get between.

use std::{fmt, io, str::FromStr};

/// One message of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The guest is up and has read its plan.
    Ready,
    /// A case begins.
    Begin {
        /// The case's name.
        case: String,
    },
    /// All that the case wrote to its standard output.
    Stdout {
        /// The case's name.
        case: String,
        /// As written.
        bytes: Vec<u8>,
    },
    /// All that the case wrote to its standard error.
    Stderr {
        /// The case's name.
        case: String,
        /// As written.
        bytes: Vec<u8>,
    },
    /// A file that the plan asked for.
    File {
        /// The case's name.
        case: String,
        /// The path in the guest.
        path: String,
        /// The content.
        bytes: Vec<u8>,
    },
    /// A case has ended.
    End {
        /// The case's name.
        case: String,
        /// How.
        end: End,
        /// Milliseconds of guest time from start to end.
        took_ms: u64,
    },
    /// The guest has run its whole plan and is about to power off.
    Done,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// Killed, since it ran for longer than its time.
    Timeout,
    /// It could not be started.
    NotStarted(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Timeout => write!(f, "timeout"),
            Self::NotStarted(why) => write!(f, "not-started {why}"),
        }
    }
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let number = || rest.parse().map_err(|_| format!("{text:?} is no end of a case"));
        match word {
            "exit" => Ok(Self::Exit(number()?)),
            "signal" => Ok(Self::Signal(number()?)),
            "timeout" => Ok(Self::Timeout),
            "not-started" => Ok(Self::NotStarted(rest.to_owned())),
            _ => Err(format!("{text:?} is no end of a case")),
        }
    }
}

impl Frame {
    /// Writes the frame.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        let end_text;
        let (kind, case, path, payload): (_, &str, &str, &[u8]) = match self {
            Self::Ready => ("ready", "-", "", &[]),
            Self::Begin { case } => ("begin", case, "", &[]),
            Self::Stdout { case, bytes } => ("stdout", case, "", bytes),
            Self::Stderr { case, bytes } => ("stderr", case, "", bytes),
            Self::File { case, path, bytes } => ("file", case, path, bytes),
            Self::End { case, end, took_ms } => {
                end_text = format!("{took_ms} {end}");
                ("end", case, "", end_text.as_bytes())
            }
            Self::Done => ("done", "-", "", &[]),
        };
        writeln!(to, "frame {kind} {case} {} {path}", payload.len())?;
        to.write_all(payload)?;
        to.write_all(b"\n")?;
        to.flush()
    }
}

/// What a guest has sent, up to its end or to the point where it broke off.
#[derive(Debug, PartialEq, Eq)]
pub struct Stream {
    /// The whole frames.
    pub frames: Vec<Frame>,
    /// Why reading ended before the last byte, if it did.
    pub broken: Option<String>,
}

/// Reads all frames. A guest that dies in the middle of one leaves the frames before it readable.
pub fn parse(bytes: &[u8]) -> Stream {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        match next(rest) {
            Ok((frame, len)) => {
                frames.push(frame);
                rest = &rest[len..];
            }
            Err(why) => {
                let offset = bytes.len() - rest.len();
                return Stream { frames, broken: Some(format!("{why} at byte {offset}")) };
            }
        }
    }
    Stream { frames, broken: None }
}

/// The first frame and the number of bytes that it takes.
fn next(bytes: &[u8]) -> Result<(Frame, usize), String> {
    let header_len = bytes.iter().position(|b| *b == b'\n').ok_or("a cut header")?;
    let header = str::from_utf8(&bytes[..header_len]).map_err(|_| "a header that is no text")?;
    let wrong = || format!("a header {header:?} of no frame");
    let mut fields = header.splitn(5, ' ');
    let mut field = || fields.next().ok_or_else(wrong);
    if field()? != "frame" {
        return Err(wrong());
    }
    let (kind, case, length, path) = (field()?, field()?, field()?, field()?);
    let length: usize = length.parse().map_err(|_| wrong())?;
    let start = header_len + 1;
    let end = start.checked_add(length).ok_or_else(wrong)?;
    let payload = bytes.get(start..end).ok_or("a cut payload")?;
    match bytes.get(end) {
        None => return Err("a cut payload".into()),
        Some(b'\n') => {}
        Some(_) => return Err("a payload of the wrong length".into()),
    }
    let (case, bytes) = (case.to_owned(), payload.to_vec());
    let frame = match kind {
        "ready" => Frame::Ready,
        "begin" => Frame::Begin { case },
        "stdout" => Frame::Stdout { case, bytes },
        "stderr" => Frame::Stderr { case, bytes },
        "file" => Frame::File { case, path: path.to_owned(), bytes },
        "end" => {
            let text = String::from_utf8_lossy(payload);
            let (took, how) = text.split_once(' ').ok_or_else(wrong)?;
            let took_ms = took.parse().map_err(|_| wrong())?;
            Frame::End { case, end: how.parse()?, took_ms }
        }
        "done" => Frame::Done,
        _ => return Err(wrong()),
    };
    Ok((frame, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_frames() -> Vec<Frame> {
        let case = || "a-case".to_owned();
        let end = |end| Frame::End { case: case(), end, took_ms: 1234 };
        vec![
            Frame::Ready,
            Frame::Begin { case: case() },
            Frame::Stdout { case: case(), bytes: b"frame done - 0 \n\n\0\xff\r\n".to_vec() },
            Frame::Stderr { case: case(), bytes: Vec::new() },
            Frame::File { case: case(), path: "/tmp/with space".into(), bytes: vec![7; 70_000] },
            end(End::Exit(0)),
            end(End::Exit(3)),
            end(End::Signal(9)),
            end(End::Timeout),
            end(End::NotStarted("no such file".into())),
            Frame::Done,
        ]
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.write(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn every_frame_survives_the_trip() {
        let frames = all_frames();
        let stream = parse(&written(&frames));
        assert_eq!(stream, Stream { frames, broken: None });
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_frames_before_the_cut() {
        let frames = all_frames();
        let mut ends = Vec::new();
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
            ends.push(bytes.len());
        }
        // The long payload is cut in a few places only, or the test would copy gigabytes.
        for cut in (0..bytes.len()).filter(|c| c % 997 == 0 || *c < 200 || *c + 200 > bytes.len()) {
            let stream = parse(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(stream.frames, frames[..whole], "cut at {cut}");
            assert_eq!(stream.broken.is_some(), cut != 0 && !ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn noise_is_named_with_its_place() {
        let mut bytes = written(&[Frame::Ready]);
        let at = bytes.len();
        bytes.extend_from_slice(b"[   12.3] Kernel panic - not syncing\n");
        let stream = parse(&bytes);
        assert_eq!(stream.frames, [Frame::Ready]);
        assert!(stream.broken.unwrap().ends_with(&format!("at byte {at}")));
    }

    #[test]
    fn a_wrong_length_is_not_taken_for_a_frame() {
        for text in ["frame stdout a 2 \nabc\n", "frame stdout a 18446744073709551615 \nabc\n"] {
            let stream = parse(text.as_bytes());
            assert_eq!(stream.frames, []);
            assert!(stream.broken.is_some());
        }
    }
}
