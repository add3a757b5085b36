//! `toolward serve` and `toolward stdio` from outside: scripted servers behind, raw bytes in front.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "serve/calls.rs"]
mod calls;
#[path = "serve/compatible.rs"]
mod compatible;
#[path = "serve/cut.rs"]
mod cut;
#[path = "serve/cut_files.rs"]
mod cut_files;
#[path = "serve/denying.rs"]
mod denying;
#[path = "serve/eras.rs"]
mod eras;
#[path = "serve/fresh.rs"]
mod fresh;
#[path = "serve/gone.rs"]
mod gone;
#[path = "serve/growth.rs"]
mod growth;
#[path = "serve/handover.rs"]
mod handover;
#[path = "serve/harness.rs"]
mod harness;
#[path = "serve/headers.rs"]
mod headers;
#[path = "serve/identity.rs"]
mod identity;
#[path = "serve/ingress.rs"]
mod ingress;
#[path = "serve/late.rs"]
mod late;
#[path = "serve/life.rs"]
mod life;
#[path = "serve/log.rs"]
mod log;
#[path = "serve/memory.rs"]
mod memory;
#[path = "serve/messages.rs"]
mod messages;
#[path = "serve/names.rs"]
mod names;
#[path = "serve/numbers.rs"]
mod numbers;
#[path = "serve/outbound.rs"]
mod outbound;
#[path = "serve/own.rs"]
mod own;
#[path = "serve/processes.rs"]
mod processes;
#[path = "program/record.rs"]
mod record;
#[path = "serve/recorded.rs"]
mod recorded;
#[path = "serve/refusals.rs"]
mod refusals;
#[path = "serve/reload.rs"]
mod reload;
#[path = "serve/replaced.rs"]
mod replaced;
#[path = "serve/resume.rs"]
mod resume;
#[path = "serve/room.rs"]
mod room;
#[path = "serve/running.rs"]
mod running;
#[path = "serve/sessions.rs"]
mod sessions;
#[path = "serve/sink.rs"]
mod sink;
#[path = "serve/starts.rs"]
mod starts;
#[path = "serve/stdio_results.rs"]
mod stdio_results;
#[path = "serve/tested.rs"]
mod tested;
#[path = "serve/timeouts.rs"]
mod timeouts;
#[path = "serve/tls.rs"]
mod tls;
#[path = "serve/token.rs"]
mod token;
#[path = "serve/turned_away.rs"]
mod turned_away;
#[path = "serve/views.rs"]
mod views;
#[path = "serve/wire.rs"]
mod wire;
