//! Orders: purchases of a visitor with an order id of the shop.
//!
//! An order counts once per person, even if several of its browsers report it. Every view of the person counts the same
//! one of them. No purchase is removed from a visitor, so the visitor's sums are complete when it leaves the person.

use crate::base::ids::OrderHash;
use std::collections::BTreeMap;

use crate::base::ids::Micros;
use crate::base::limits;
use crate::base::packed::{self, PackedReader};
use crate::base::time::Minute;

/// One purchase of an order. Of two purchases, the earlier is the smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderPurchase {
    /// Minute of the purchase.
    pub at: Minute,
    /// Value, in micros of the tenant's currency.
    pub value: Micros,
}

/// The newest orders of one visitor, at most [`limits::ORDERS`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisitorOrders(BTreeMap<OrderHash, OrderPurchase>);

impl VisitorOrders {
    /// Whether the order is stored.
    #[must_use]
    pub fn contains(&self, order: OrderHash) -> bool {
        self.0.contains_key(&order)
    }

    /// Adds a purchase of an order. Of two purchases of one order, the earlier is stored.
    pub fn insert(&mut self, order: OrderHash, purchase: OrderPurchase) {
        let first = self.0.get(&order).map_or(purchase, |known| purchase.min(*known));
        self.0.insert(order, first);
        let oldest = || self.0.iter().min_by_key(|(order, purchase)| (**purchase, **order)).map(|(order, _)| *order);
        if let Some(oldest) = oldest().filter(|_| self.0.len() > limits::ORDERS) {
            self.0.remove(&oldest);
        }
    }

    /// Whether there are no orders.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The packed form: hash, minute and value of each order.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 16);
        for (order, OrderPurchase { at, value }) in &self.0 {
            bytes.extend_from_slice(&order.0.to_be_bytes());
            packed::put(&mut bytes, at.0.into());
            packed::put_signed(&mut bytes, value.get());
        }
        bytes
    }

    /// Reads the form of [`Self::pack`]; `None` if it is malformed.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (mut from, mut orders) = (PackedReader(bytes), Self::default());
        while !from.0.is_empty() {
            let order = OrderHash(u64::from_be_bytes(from.take(8)?.try_into().ok()?));
            let at = Minute(u32::try_from(from.number()?).ok()?);
            let purchase = OrderPurchase { at, value: Micros::new(from.signed()?) };
            if orders.0.len() == limits::ORDERS || orders.0.insert(order, purchase).is_some() {
                return None;
            }
        }
        Some(orders)
    }
}

/// The purchases that do not count because an earlier purchase of their order does, each with the index of its visitor.
/// Of two equal purchases, the first visitor's counts.
#[must_use]
pub fn find_repeats(visitors: &[VisitorOrders]) -> Vec<(usize, OrderPurchase)> {
    let mut first: BTreeMap<OrderHash, (OrderPurchase, usize)> = BTreeMap::new();
    let mut repeats = Vec::new();
    for (index, orders) in visitors.iter().enumerate() {
        for (order, purchase) in &orders.0 {
            let Some(known) = first.get_mut(order) else {
                first.insert(*order, (*purchase, index));
                continue;
            };
            let (earlier, later) =
                if (*purchase, index) < *known { ((*purchase, index), *known) } else { (*known, (*purchase, index)) };
            *known = earlier;
            repeats.push((later.1, later.0));
        }
    }
    repeats
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::base::ids::{FactId, VisitorId};
    use crate::base::time::DAY_MS;
    use crate::facts::fact::{Fact, FactKind, PURCHASE};
    use crate::profiles::profile::Profile;

    fn orders(all: &[(&str, u32, i64)]) -> VisitorOrders {
        let mut orders = VisitorOrders::default();
        for (id, at, value) in all {
            orders.insert(OrderHash::of(id), OrderPurchase { at: Minute(*at), value: Micros::new(*value) });
        }
        orders
    }

    #[test]
    fn an_order_of_two_visitors_counts_once_and_the_earliest_counts() {
        let (phone, laptop) = (orders(&[("o-7", 20, 9), ("o-8", 5, 1)]), orders(&[("o-7", 10, 8), ("o-9", 5, 1)]));
        let tablet = orders(&[("o-7", 10, 8)]);
        let later = OrderPurchase { at: Minute(20), value: Micros::new(9) };
        assert_eq!(find_repeats(&[phone.clone(), laptop.clone()]), [(0, later)]);
        assert_eq!(find_repeats(&[laptop.clone(), phone.clone()]), [(1, later)]);
        let three = find_repeats(&[phone, laptop, tablet]);
        assert_eq!(three, [(0, later), (2, OrderPurchase { at: Minute(10), value: Micros::new(8) })]);
        assert_eq!(find_repeats(&[orders(&[("a", 1, 1)]), orders(&[("b", 1, 1)])]), []);
    }

    #[test]
    fn an_order_counts_once_for_a_visitor_also_when_its_fact_id_was_forgotten() {
        let visitor = VisitorId::mint(1, [7; 10]);
        let order = Some(OrderHash::of("o-7"));
        let what = FactKind::Track { name: PURCHASE.into(), value: Some(Micros::new(9)), order, properties: None };
        let fact =
            Fact { position: 0, id: FactId::of_message(visitor, "m"), visitor, received: 60_000, at: 60_000, what };
        let mut profile = Profile::default();
        profile.fold(&fact);
        let before = profile.clone();
        profile.fold(&Fact { received: 46 * DAY_MS, at: 46 * DAY_MS, ..fact });
        assert_eq!(profile, before);
        assert_eq!((profile.totals().purchases, profile.totals().revenue), (1, Micros::new(9)));
    }

    #[test]
    fn the_newest_orders_stay_in_whatever_order_they_come() {
        let all: Vec<String> = (0..=limits::ORDERS).map(|n| n.to_string()).collect();
        let of = |names: &mut dyn Iterator<Item = (usize, &String)>| {
            let mut orders = VisitorOrders::default();
            names.for_each(|(n, id)| {
                let at = Minute(u32::try_from(n).unwrap());
                orders.insert(OrderHash::of(id), OrderPurchase { at, value: Micros::new(1) });
            });
            orders
        };
        let forward = of(&mut all.iter().enumerate());
        assert_eq!(forward, of(&mut all.iter().enumerate().rev()));
        assert_eq!(forward.0.len(), limits::ORDERS);
        assert!(!forward.0.contains_key(&OrderHash::of("0")), "the oldest is left out");
    }

    #[test]
    fn orders_are_the_same_after_their_bytes_and_no_cut_passes() {
        let some = orders(&[("o-7", 20, 9_000_000), ("o-8", 5, 0)]);
        let bytes = some.pack();
        assert_eq!(VisitorOrders::read(&bytes), Some(some));
        assert_eq!(VisitorOrders::read(&[]), Some(VisitorOrders::default()));
        for cut in 1..bytes.len() {
            let read = VisitorOrders::read(bytes.get(..cut).unwrap());
            assert!(read.is_none_or(|read| read.0.len() == 1), "{cut}");
        }
        assert_eq!(VisitorOrders::read(&[bytes.clone(), bytes].concat()), None, "an order stands once");
    }
}
