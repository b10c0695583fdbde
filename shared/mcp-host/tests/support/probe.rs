//! A host for tests: a program whose first line makes it a guard, and that can be killed without harm to the test itself.
//!
//! `mcp-host-probe hold ARGV…` starts ARGV under a guard, says `up PID` and waits for ever.

use std::io::Write;

use vance_mcp_host::{env, guard};

fn main() -> std::process::ExitCode {
    guard::enter_if_asked();
    let mut args = std::env::args().skip(1);
    let (Some(word), argv) = (args.next(), args.collect::<Vec<String>>()) else {
        return std::process::ExitCode::from(2);
    };
    if word != "hold" {
        return std::process::ExitCode::from(2);
    }
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return std::process::ExitCode::FAILURE };
    runtime.block_on(hold(argv))
}

async fn hold(argv: Vec<String>) -> std::process::ExitCode {
    let (Ok(guard_program), Ok(cwd)) = (std::env::current_exe(), std::env::current_dir()) else {
        return std::process::ExitCode::FAILURE;
    };
    let mut child =
        match guard::spawn(guard::Spawn { argv, cwd, env: env::ambient(), stdin: true, guard_program, sandbox: None })
            .await
        {
            Ok(child) => child,
            Err(error) => {
                eprintln!("{error}");
                return std::process::ExitCode::FAILURE;
            }
        };
    println!("up {}", child.pid());
    if std::io::stdout().flush().is_err() || child.wait().await.is_err() {
        return std::process::ExitCode::FAILURE;
    }
    std::process::ExitCode::SUCCESS
}
