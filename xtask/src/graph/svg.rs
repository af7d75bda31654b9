//! Draws the crates in layers: each above all that it uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::Uses;

const BOX_HEIGHT: usize = 26;
const LAYER_HEIGHT: usize = 74;
const GAP: usize = 14;
/// Of a letter, in a font of 12 pixels.
const LETTER_WIDTH: usize = 7;
const MARGIN: usize = 20;
/// How often layers are sorted by their neighbours, against crossing arrows.
const SWEEPS: usize = 8;
/// Of one place in a layer.
const SCALE: i64 = 1_000;

#[derive(Clone, Copy)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
}

impl Place {
    fn middle(self) -> usize {
        self.x + self.width / 2
    }
}

/// The picture as SVG. Arrows that follow from others are left out.
pub(super) fn draw(uses: &Uses) -> String {
    let layers = layers(uses);
    let width = layers.iter().map(|layer| width(layer)).max().unwrap_or_default() + 2 * MARGIN;
    let height = (layers.len() - 1) * LAYER_HEIGHT + BOX_HEIGHT + 2 * MARGIN;
    let places = places(&layers, width);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Crates of the workspace; an arrow leads to a crate that is used</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#8a8f98\"/></marker>\n"
    );
    for (from, to) in direct(uses) {
        let (Some(from), Some(to)) = (places.get(from), places.get(to)) else { continue };
        let (start, end) = (from.y + BOX_HEIGHT, to.y);
        let bend = (end - start) / 2;
        writeln!(
            text,
            "<path d=\"M{x1} {start}C{x1} {b1} {x2} {b2} {x2} {end}\" fill=\"none\" \
             stroke=\"#8a8f98\" marker-end=\"url(#tip)\"/>",
            x1 = from.middle(),
            x2 = to.middle(),
            b1 = start + bend,
            b2 = end - bend,
        )
        .expect("a String takes everything");
    }
    for (name, Place { x, y, width }) in &places {
        writeln!(
            text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX_HEIGHT}\" rx=\"4\" \
             fill=\"#eef3fb\" stroke=\"#5b7db1\"/><text x=\"{middle}\" y=\"{base}\" \
             text-anchor=\"middle\">{name}</text>",
            middle = x + width / 2,
            base = y + 17,
        )
        .expect("a String takes everything");
    }
    text + "</svg>\n"
}

/// Crates that use nothing come last; each other one lies above all that it uses.
fn layers(uses: &Uses) -> Vec<Vec<&str>> {
    let mut depths: BTreeMap<&str, usize> = BTreeMap::new();
    while depths.len() < uses.len() {
        let known = depths.len();
        for (name, used) in uses {
            let below: Option<Vec<usize>> =
                used.iter().map(|used| depths.get(used.as_str()).copied()).collect();
            if let Some(below) = below {
                depths.insert(name, below.iter().max().map_or(0, |deepest| deepest + 1));
            }
        }
        if depths.len() == known {
            // Cargo allows no cycle of crates but through tests.
            break;
        }
    }
    let count = depths.values().max().map_or(0, |deepest| deepest + 1);
    let mut layers = vec![Vec::new(); count];
    for (name, depth) in depths {
        layers[count - 1 - depth].push(name);
    }
    for _ in 0..SWEEPS {
        layers.reverse();
        order(&mut layers, |a, b| uses[a].contains(b));
        layers.reverse();
        order(&mut layers, |a, b| uses[b].contains(a));
    }
    layers
}

/// Sorts each layer by where in the layers before it the crates are that it is joined to.
fn order(layers: &mut [Vec<&str>], is_joined: impl Fn(&str, &str) -> bool) {
    for number in 1..layers.len() {
        let (before, rest) = layers.split_at_mut(number);
        let key = |name: &&str| {
            let places = before.iter().flat_map(|layer| {
                let middle = i64::try_from(layer.len()).unwrap_or_default() * SCALE / 2;
                (0..).zip(layer).map(move |(at, other)| (at * SCALE + SCALE / 2, middle, *other))
            });
            let joined = places.filter(|(.., other)| is_joined(name, other));
            let offsets: Vec<i64> = joined.map(|(at, middle, _)| at - middle).collect();
            let count = i64::try_from(offsets.len().max(1)).unwrap_or(1);
            offsets.iter().sum::<i64>() / count
        };
        rest[0].sort_by_cached_key(key);
    }
}

fn box_width(name: &str) -> usize {
    name.len() * LETTER_WIDTH + 2 * GAP
}

fn width(layer: &[&str]) -> usize {
    layer.iter().map(|name| box_width(name) + GAP).sum()
}

fn places<'a>(layers: &[Vec<&'a str>], width_of_all: usize) -> BTreeMap<&'a str, Place> {
    let mut places = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        let y = MARGIN + number * LAYER_HEIGHT;
        let mut x = (width_of_all - width(layer)) / 2;
        for name in layer {
            let width = box_width(name);
            places.insert(*name, Place { x, y, width });
            x += width + GAP;
        }
    }
    places
}

/// The arrows that do not follow from others.
fn direct(uses: &Uses) -> Vec<(&str, &str)> {
    let is_indirect = |from: &BTreeSet<String>, to: &str| {
        from.iter().any(|used| used != to && reaches(uses, used, to))
    };
    uses.iter()
        .flat_map(|(from, used)| {
            let direct = used.iter().filter(|to| !is_indirect(used, to));
            direct.map(|to| (from.as_str(), to.as_str()))
        })
        .collect()
}

fn reaches(uses: &Uses, from: &str, to: &str) -> bool {
    uses.get(from)
        .is_some_and(|used| used.contains(to) || used.iter().any(|used| reaches(uses, used, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(of: &[(&str, &[&str])]) -> Uses {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        of.iter().map(|(name, used)| ((*name).to_owned(), set(used))).collect()
    }

    #[test]
    fn a_crate_lies_above_those_that_it_uses() {
        let uses = uses(&[("app", &["base", "mid"]), ("mid", &["base"]), ("base", &[])]);
        assert_eq!(layers(&uses), [vec!["app"], vec!["mid"], vec!["base"]]);
    }

    #[test]
    fn arrows_that_follow_from_others_are_left_out() {
        let uses = uses(&[("app", &["base", "mid"]), ("mid", &["base"]), ("base", &[])]);
        assert_eq!(direct(&uses), [("app", "mid"), ("mid", "base")]);
        let picture = draw(&uses);
        assert_eq!(picture.matches("marker-end").count(), 2);
        assert_eq!(picture.matches("<text").count(), 3);
    }
}
