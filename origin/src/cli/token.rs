//! `causeway token`. Works beside a running origin, and before the first start.

use anyhow::bail;
use causeway_origin::tokens::{self, Role};
use causeway_origin::{clock, store};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{Common, Usage};

/// Longest name of a token, in bytes.
const NAME_BYTES: usize = 128;

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token and print it: this is the only time it can be seen.
    Create {
        /// What it may do: everybody reads, `operator` operates, `privacy` erases.
        #[arg(long, value_enum, default_value_t = RoleArg::Viewer)]
        role: RoleArg,
        /// What you call it.
        #[arg(long, default_value = "")]
        name: String,
    },
    /// List the tokens: number, role, name, never the text.
    List,
    /// Revoke a token, at once.
    Revoke {
        /// Its number in the list.
        id: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RoleArg {
    Viewer,
    Operator,
    Privacy,
}

impl RoleArg {
    fn role(self) -> Role {
        match self {
            Self::Viewer => Role::Viewer,
            Self::Operator => Role::Operator,
            Self::Privacy => Role::Privacy,
        }
    }
}

pub(super) fn run(command: &Token, common: &Common) -> anyhow::Result<()> {
    let config = common.load()?;
    if matches!(command, Token::Create { name, .. } if name.len() > NAME_BYTES) {
        bail!(Usage(format!("a token's name has {NAME_BYTES} bytes at most")));
    }
    let conn = match command {
        Token::Create { .. } => store::open(&config.data)?,
        Token::List => store::open_readonly(&config.data)?,
        Token::Revoke { .. } => {
            store::existing(&config.data)?;
            store::open(&config.data)?
        }
    };
    match command {
        Token::Create { role, name } => {
            let (token, text) = tokens::create(&conn, role.role(), name, clock::now())?;
            let object = json!({"token": text, "id": token.id, "role": token.role, "name": token.name});
            common.output.text(&text, &object)
        }
        Token::List => {
            let rows: Vec<Value> = tokens::list(&conn)?.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
            common.output.list(&["id", "role", "name", "created_ms", "revoked_ms"], &rows)
        }
        Token::Revoke { id } => {
            if !tokens::revoke(&conn, *id, clock::now())? {
                bail!("there is no token {id} that is not revoked yet: see `causeway token list`");
            }
            common.output.text(&format!("token {id} is revoked"), &json!({"revoked": id}))
        }
    }
}
