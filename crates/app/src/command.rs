//! From the command line to an exit code. Here, and nowhere else, the clock is read (APP-1).

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{BillsArgs, Cli, Command, SimCommand};
use crate::exit::{Exit, Failure};
use crate::output::{leave_cleanly_when_interrupted, write_file, write_result};
use crate::progress::Progress;
use crate::{bills, config, demo, evidence, report_command, simulate};

/// What the binary does.
pub fn main() -> ExitCode {
    leave_cleanly_when_interrupted();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are results; mistakes go to standard error. A closed pipe is no failure of ours.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let exit = match catch_unwind(AssertUnwindSafe(|| run(&cli.command, now_ms))) {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            say(&failure.to_string());
            failure.exit
        }
        Err(_) => {
            say("error: this is a fault of gpuledger, not of your data; please report it with the lines above");
            Exit::Unexpected
        }
    };
    exit.into()
}

/// Runs a command.
pub fn run(command: &Command, now_ms: i64) -> Result<Exit, Failure> {
    match command {
        Command::Report(args) => report_command::run(args, now_ms),
        Command::Bills(args) => run_bills(args),
        Command::Sim(SimCommand::Write(args)) => {
            let text = simulate::write(args, &Progress::on_stderr())?;
            write_result(None, &text).map(|()| Exit::Done)
        }
        Command::Sim(SimCommand::Score(args)) => {
            let text = simulate::score(args, &Progress::on_stderr())?;
            write_result(args.out.as_deref(), &text).map(|()| Exit::Done)
        }
        Command::Evidence(args) => evidence::run(args),
        Command::Demo(args) => demo::run(args),
    }
}

/// Writes a line to standard error. One that is closed is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

fn run_bills(args: &BillsArgs) -> Result<Exit, Failure> {
    let assumed = config::parse_assumed(&args.assume)?;
    let mut stderr = io::stderr();
    let mut run = |out: &mut dyn Write| bills::run(&args.paths, args.format, &assumed.bills, args.deliveries, out, &mut stderr);
    match &args.out {
        None => Ok(run(&mut io::stdout().lock())),
        Some(path) => {
            let mut result = Vec::new();
            let exit = run(&mut result);
            if exit != Exit::Unexpected {
                write_file(path, &result)?;
            }
            Ok(exit)
        }
    }
}
