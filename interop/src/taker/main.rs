//! A client of the matrix (`tests/clients/matrix`) that is written in Rust: this crate, or the
//! client of the crate `zookeeper-client`.
//!
//!     taker CLIENT HOST:PORT
//!
//! It takes and releases locks as the lines of its input say, each lock in a thread of its own:
//!
//!     take ID RECIPE PATH     takes the lock and keeps it: "ID held" when it has it
//!     check ID                "ID holds" if the server confirms the hold (this crate only)
//!     release ID              "ID released" when it has asked the server to delete the node
//!
//! A call that this crate refuses as a wrong use is "ID refused TEXT", any other error
//! "ID failed TEXT".

mod foreign;
mod ours;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a thread that has a lock is asked to do.
#[derive(Clone, Copy)]
enum Order {
    Check,
    Release,
}

/// One lock to take.
struct Task {
    id: String,
    recipe: String,
    path: String,
    orders: Receiver<Order>,
}

impl Task {
    fn say(&self, what: &str) {
        println!("{} {}", self.id, what.replace('\n', " "));
    }

    /// Keeps a lock until it is to be released. Dropping `guard` releases it.
    fn keep<G>(&self, guard: G, is_held: impl Fn(&G) -> bool) {
        self.say("held");
        for order in &self.orders {
            match order {
                Order::Check if is_held(&guard) => self.say("holds"),
                Order::Check => self.say("lost"),
                Order::Release => break,
            }
        }
        drop(guard);
        self.say("released");
    }
}

/// A client whose locks can be taken.
trait Client: Send + Sync {
    /// Takes the lock of a task, keeps it, and releases it.
    fn take(&self, task: &Task) -> Result<(), Failure>;

    /// Whether the error says that the call is a wrong use.
    fn refuses(&self, failure: &Failure) -> bool;
}

fn main() -> Result<(), Failure> {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error")).init();
    let mut words = std::env::args().skip(1);
    let (client, hosts) = (words.next().ok_or("which client?")?, words.next().ok_or("where?")?);
    let client: Arc<dyn Client> = match client.as_str() {
        "zk-mutex" => Arc::new(ours::Ours::new(hosts)),
        "zookeeper-client" => Arc::new(foreign::Foreign::connect(&hosts)?),
        other => return Err(format!("there is no client {other}").into()),
    };
    let mut holders: HashMap<String, Sender<Order>> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["take", id, recipe, path] => {
                let (sender, orders) = channel();
                holders.insert(id.to_owned(), sender);
                let [id, recipe, path] = [id, recipe, path].map(str::to_owned);
                let task = Task { id, recipe, path, orders };
                let client = Arc::clone(&client);
                thread::spawn(move || match client.take(&task) {
                    Ok(()) => {}
                    Err(failure) if client.refuses(&failure) => {
                        task.say(&format!("refused {failure}"));
                    }
                    Err(failure) => task.say(&format!("failed {failure}")),
                });
            }
            [deed @ ("check" | "release"), id] => {
                let order = if deed == "check" { Order::Check } else { Order::Release };
                let holder = holders.get(id).ok_or_else(|| format!("there is no lock {id}"))?;
                holder.send(order).map_err(|_| format!("the lock {id} has ended"))?;
            }
            _ => return Err(format!("this is no order: {line}").into()),
        }
    }
    Ok(())
}
