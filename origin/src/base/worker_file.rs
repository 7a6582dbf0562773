//! The worker's configuration file, `wrangler.toml`: whether its facts queues fit the origin's configuration.

use causeway_shared::base::problems::ConfigProblem;
use causeway_shared::settings::facts_queues::{FIRST_BINDING, FIRST_QUEUE, binding_of, numbered_name};
use serde::Deserialize;

/// The outcome of a check.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct QueueCheck {
    /// Missing, superfluous and wrong blocks, each with the lines to add, to change or to remove.
    pub problems: Vec<ConfigProblem>,
    /// Consumers of queues that no longer take facts. They must stay until their queue is empty.
    pub leftovers: Vec<String>,
}

/// The part of the file that is checked.
#[derive(Deserialize)]
struct WorkerFile {
    #[serde(default)]
    queues: QueueTables,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct QueueTables {
    producers: Vec<QueueProducer>,
    consumers: Vec<QueueConsumer>,
}

#[derive(Deserialize)]
struct QueueProducer {
    binding: String,
    queue: String,
}

#[derive(Deserialize)]
struct QueueConsumer {
    queue: String,
    dead_letter_queue: Option<String>,
}

/// Compares the facts queues of a worker's file with their number, `facts_queues` of the configuration.
///
/// The queue of the binding `FACTS` gives the beginning of all names, so that a second environment of the same account
/// may have queues of its own. A file without any consumer is that of a second worker, whose messages the first one
/// consumes.
///
/// # Errors
/// The text is not TOML, or a block of a queue has no name.
pub fn check_queues(text: &str, facts_queues: u32) -> Result<QueueCheck, toml::de::Error> {
    let QueueTables { producers, consumers } = toml::from_str::<WorkerFile>(text)?.queues;
    let first = producers.iter().find(|producer| producer.binding == FIRST_BINDING);
    let first = first.map_or(FIRST_QUEUE, |producer| producer.queue.as_str());
    let mut check = QueueCheck::default();
    check_producers(&producers, first, facts_queues, &mut check);
    if !consumers.is_empty() {
        check_consumers(&consumers, first, facts_queues, &mut check);
    }
    Ok(check)
}

fn check_producers(producers: &[QueueProducer], first: &str, facts_queues: u32, check: &mut QueueCheck) {
    for number in 0..facts_queues {
        let (binding, queue) = (binding_of(number), numbered_name(first, '-', number));
        match producers.iter().find(|producer| producer.binding == binding) {
            None => check.say(
                &format!("queues.producers.{binding}"),
                &format!("missing: add\n\n[[queues.producers]]\nbinding = \"{binding}\"\nqueue = \"{queue}\"\n"),
            ),
            Some(producer) if producer.queue != queue => check.say(
                &format!("queues.producers.{binding}"),
                &format!("the queue is `{}`: write queue = \"{queue}\"", producer.queue),
            ),
            Some(_) => {}
        }
    }
    for QueueProducer { binding, .. } in producers {
        if is_later(binding, FIRST_BINDING, '_', facts_queues) {
            check.say(
                &format!("queues.producers.{binding}"),
                &format!("superfluous with facts_queues = {facts_queues}: remove this [[queues.producers]]"),
            );
        }
    }
}

fn check_consumers(consumers: &[QueueConsumer], first: &str, facts_queues: u32, check: &mut QueueCheck) {
    let dead = format!("{first}-dead");
    for number in 0..facts_queues {
        let queue = numbered_name(first, '-', number);
        match consumers.iter().find(|consumer| consumer.queue == queue) {
            None => check.say(
                &format!("queues.consumers.{queue}"),
                &format!(
                    "missing: add\n\n[[queues.consumers]]\nqueue = \"{queue}\"\nmax_batch_size = 100\n\
                     max_batch_timeout = 1\nmax_retries = 100\nretry_delay = 5\ndead_letter_queue = \"{dead}\"\n"
                ),
            ),
            Some(consumer) if consumer.dead_letter_queue.as_ref() != Some(&dead) => check.say(
                &format!("queues.consumers.{queue}"),
                &format!("its dead letters go elsewhere: write dead_letter_queue = \"{dead}\""),
            ),
            Some(_) => {}
        }
    }
    if !consumers.iter().any(|consumer| consumer.queue == dead) {
        check.say(
            &format!("queues.consumers.{dead}"),
            &format!(
                "missing: add\n\n[[queues.consumers]]\nqueue = \"{dead}\"\nmax_batch_size = 100\n\
                 max_batch_timeout = 30\nmax_retries = 100\nretry_delay = 14400\n"
            ),
        );
    }
    let later = consumers.iter().filter(|consumer| is_later(&consumer.queue, first, '-', facts_queues));
    check.leftovers = later.map(|consumer| consumer.queue.clone()).collect();
}

/// Whether a name is that of a facts queue, or of its binding, after the first `facts_queues`.
fn is_later(name: &str, first: &str, separator: char, facts_queues: u32) -> bool {
    let position = name.strip_prefix(first).and_then(|rest| rest.strip_prefix(separator));
    position.is_some_and(|position| {
        position.bytes().all(|byte| byte.is_ascii_digit())
            && position.parse::<u32>().is_ok_and(|position| position < 2 || position > facts_queues)
    })
}

impl QueueCheck {
    fn say(&mut self, path: &str, message: &str) {
        self.problems.push(ConfigProblem { path: path.to_owned(), message: message.to_owned() });
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use super::*;

    const OWN: &str = include_str!("../../../wrangler.toml");

    /// The paths of the problems.
    fn paths(check: &QueueCheck) -> Vec<&str> {
        check.problems.iter().map(|problem| problem.path.as_str()).collect()
    }

    /// The file with the lines that the check asks to add.
    fn repaired(text: &str, facts_queues: u32) -> String {
        let missing = check_queues(text, facts_queues).unwrap().problems;
        let lines = missing.iter().filter_map(|problem| problem.message.strip_prefix("missing: add\n"));
        // Before the first table of the file.
        let (head, tail) = text.split_once("\n[[queues.producers]]").unwrap_or((text, ""));
        let tail = if tail.is_empty() { String::new() } else { format!("\n[[queues.producers]]{tail}") };
        format!("{head}{}{tail}", lines.collect::<String>())
    }

    #[test]
    fn the_checkouts_file_fits_the_default_configuration() {
        assert_eq!(check_queues(OWN, 1).unwrap(), QueueCheck::default());
    }

    #[test]
    fn each_missing_block_is_named_and_the_lines_to_add_repair_the_file() {
        let check = check_queues(OWN, 3).unwrap();
        let (producers, consumers) = ("queues.producers.FACTS", "queues.consumers.causeway-facts");
        let missing = [producers, consumers].map(|of| [2, 3].map(|number| (of, number)));
        let missing: Vec<String> = missing
            .as_flattened()
            .iter()
            .map(|(of, number)| if *of == producers { format!("{of}_{number}") } else { format!("{of}-{number}") })
            .collect();
        assert_eq!(paths(&check), missing);
        assert!(check.problems[0].message.contains("binding = \"FACTS_2\"\nqueue = \"causeway-facts-2\"\n"));
        assert_eq!(check_queues(&repaired(OWN, 3), 3).unwrap(), QueueCheck::default());
    }

    #[test]
    fn an_added_consumer_has_the_settings_of_the_first() {
        let of = |text: &str, queue: &str| -> toml::Table {
            let file: toml::Table = toml::from_str(text).unwrap();
            let all = file["queues"]["consumers"].as_array().unwrap();
            let own = all.iter().find(|consumer| consumer["queue"].as_str() == Some(queue)).unwrap();
            let mut own = own.as_table().unwrap().clone();
            own.remove("queue");
            own
        };
        assert_eq!(of(&repaired(OWN, 2), "causeway-facts-2"), of(OWN, "causeway-facts"));
        let without_dead =
            OWN.replace("queue = \"causeway-facts-dead\"\nmax_batch_size", "queue = \"q\"\nmax_batch_size");
        assert_eq!(paths(&check_queues(&without_dead, 1).unwrap()), ["queues.consumers.causeway-facts-dead"]);
        assert_eq!(of(&repaired(&without_dead, 1), "causeway-facts-dead"), of(OWN, "causeway-facts-dead"));
    }

    #[test]
    fn a_superfluous_binding_is_a_problem_and_its_consumer_may_stay() {
        let three = repaired(OWN, 3);
        let check = check_queues(&three, 2).unwrap();
        assert_eq!(paths(&check), ["queues.producers.FACTS_3"]);
        assert_eq!(check.leftovers, ["causeway-facts-3"]);
        let without = three.replace("[[queues.producers]]\nbinding = \"FACTS_3\"\nqueue = \"causeway-facts-3\"\n", "");
        let check = check_queues(&without, 2).unwrap();
        assert_eq!((paths(&check).len(), check.leftovers.len()), (0, 1));
        assert_eq!(paths(&check_queues(&OWN.replace("\"FACTS\"", "\"FACTS_1\""), 1).unwrap()).len(), 2);
    }

    #[test]
    fn a_wrong_queue_and_wrong_dead_letters_are_named() {
        let three = repaired(OWN, 3);
        let swapped =
            three.replace("\"FACTS_2\"\nqueue = \"causeway-facts-2\"", "\"FACTS_2\"\nqueue = \"causeway-facts\"");
        let check = check_queues(&swapped, 3).unwrap();
        assert_eq!(paths(&check), ["queues.producers.FACTS_2"]);
        assert!(check.problems[0].message.contains("write queue = \"causeway-facts-2\""));
        let lost = OWN.replace("dead_letter_queue", "# dead_letter_queue");
        assert_eq!(paths(&check_queues(&lost, 1).unwrap()), ["queues.consumers.causeway-facts"]);
    }

    #[test]
    fn names_of_an_environment_and_a_second_worker_without_consumers_are_accepted() {
        let staging = repaired(OWN, 2).replace("causeway-facts", "staging-facts");
        assert_eq!(check_queues(&staging, 2).unwrap(), QueueCheck::default());
        let second = "[[queues.producers]]\nbinding = \"FACTS\"\nqueue = \"causeway-facts\"\n";
        assert_eq!(check_queues(second, 1).unwrap(), QueueCheck::default());
        assert_eq!(paths(&check_queues("name = \"worker\"", 1).unwrap()), ["queues.producers.FACTS"]);
        assert!(check_queues("[[queues.producers]]", 1).is_err());
    }
}
