//! Links visitors into people by evidence; the only room that writes people and lookups.

pub mod alternates;
pub mod canonical;
pub mod changes;
pub mod connections;
pub mod cuts;
pub mod directory;
pub mod evidence;
pub mod link;
pub mod lookups;
pub mod neighbourhood;
pub mod people;
pub mod planned;
pub mod stored_person;
