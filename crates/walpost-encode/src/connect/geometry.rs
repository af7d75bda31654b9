//! Geometric types: their text to structs with well-known binary.

use bytes::Bytes;

use super::{hex, value::Value};

const POINT: u32 = 1;
const LINE_STRING: u32 = 2;
const POLYGON: u32 = 3;

/// Bit of extended well-known binary: a reference system follows.
const HAS_SRID: u32 = 0x2000_0000;

/// Numbers of a text such as `((0,0),(1,1))`, in order.
fn numbers(text: &str) -> Option<Vec<f64>> {
    let is_mark = |c: char| "()[]{}<>, ".contains(c);
    text.split(is_mark).filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

fn points(text: &str) -> Option<Vec<[f64; 2]>> {
    let numbers = numbers(text)?;
    let (points, rest) = numbers.as_chunks::<2>();
    (rest.is_empty() && !points.is_empty()).then(|| points.to_vec())
}

/// `point`: x, y, binary, no reference system.
pub(crate) fn point(text: &str) -> Option<Value> {
    match points(text)?.as_slice() {
        [point] => Some(point_struct(*point)),
        _ => None,
    }
}

fn point_struct(point: [f64; 2]) -> Value {
    let mut wkb = header(POINT);
    push_coordinates(&[point], &mut wkb);
    let [x, y] = point;
    Value::Struct(vec![Value::Float64(x), Value::Float64(y), Value::Bytes(wkb.into()), Value::Null])
}

/// `box`: its outline, from its first corner on.
pub(crate) fn rectangle(text: &str) -> Option<Value> {
    let corners = points(text)?;
    let [[x1, y1], [x2, y2]] = *corners.as_slice() else {
        return None;
    };
    let ring = [[x1, y1], [x1, y2], [x2, y2], [x2, y1], [x1, y1]];
    Some(geometry(polygon_wkb(&ring), &[("type", "box")]))
}

/// `lseg`
pub(crate) fn segment(text: &str) -> Option<Value> {
    let ends = points(text).filter(|points| points.len() == 2)?;
    Some(geometry(line_wkb(&ends), &[("type", "lseg")]))
}

/// `path`
pub(crate) fn path(text: &str) -> Option<Value> {
    let closed = if text.starts_with('[') { "false" } else { "true" };
    Some(geometry(line_wkb(&points(text)?), &[("type", "path"), ("closed", closed)]))
}

/// `polygon`
pub(crate) fn polygon(text: &str) -> Option<Value> {
    let mut ring = points(text)?;
    if ring.len() >= 2 && ring.first() != ring.last() {
        ring.push(ring[0]);
    }
    Some(geometry(polygon_wkb(&ring), &[("type", "polygon")]))
}

/// `circle`: its centre and radius.
pub(crate) fn circle(text: &str) -> Option<Value> {
    match *numbers(text)?.as_slice() {
        [x, y, radius] => Some(Value::Struct(vec![point_struct([x, y]), Value::Float64(radius)])),
        _ => None,
    }
}

/// `line`: its three coefficients.
pub(crate) fn line(text: &str) -> Option<Value> {
    let numbers = numbers(text).filter(|numbers| numbers.len() == 3)?;
    Some(Value::Struct(numbers.into_iter().map(Value::Float64).collect()))
}

/// `geometry` and `geography` of PostGIS, whose text is extended well-known
/// binary in hexadecimal; only the former has extensions.
pub(crate) fn postgis(text: &str, has_extensions: bool) -> Option<Value> {
    let wkb = hex::parse(text).filter(|wkb| wkb.len() >= 9)?;
    let word = |at: usize| {
        let bytes = [wkb[at], wkb[at + 1], wkb[at + 2], wkb[at + 3]];
        if wkb[0] == 0 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    };
    let has_srid = word(1) & HAS_SRID != 0;
    let srid = if has_srid { Value::Int32(word(5) as i32) } else { Value::Null };
    let mut values = vec![Value::Bytes(wkb.into()), srid];
    values.extend(has_extensions.then_some(Value::Null));
    Some(Value::Struct(values))
}

fn geometry(wkb: Vec<u8>, extensions: &[(&str, &str)]) -> Value {
    let text = |text: &str| Value::String(text.into());
    let extensions = extensions.iter().map(|(key, value)| (text(key), text(value))).collect();
    Value::Struct(vec![Value::Bytes(Bytes::from(wkb)), Value::Null, Value::Map(extensions)])
}

fn line_wkb(points: &[[f64; 2]]) -> Vec<u8> {
    let mut wkb = header(LINE_STRING);
    push_points(points, &mut wkb);
    wkb
}

fn polygon_wkb(ring: &[[f64; 2]]) -> Vec<u8> {
    let mut wkb = header(POLYGON);
    wkb.extend_from_slice(&1_u32.to_le_bytes());
    push_points(ring, &mut wkb);
    wkb
}

/// Little endian, then the kind.
fn header(kind: u32) -> Vec<u8> {
    let mut wkb = vec![1];
    wkb.extend_from_slice(&kind.to_le_bytes());
    wkb
}

fn push_points(points: &[[f64; 2]], wkb: &mut Vec<u8>) {
    wkb.extend_from_slice(&(points.len() as u32).to_le_bytes());
    push_coordinates(points, wkb);
}

fn push_coordinates(points: &[[f64; 2]], wkb: &mut Vec<u8>) {
    for coordinate in points.as_flattened() {
        wkb.extend_from_slice(&coordinate.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_geometry_is_told() {
        assert_eq!(point("(1)"), None);
        assert_eq!(point("(1,2),(3,4)"), None);
        assert_eq!(rectangle("(1,2)"), None);
        assert_eq!(line("{1,2}"), None);
        assert_eq!(circle("<(1,2)>"), None);
        assert_eq!(polygon("()"), None);
        assert_eq!(path("[(x,y)]"), None);
        assert_eq!(postgis("0101", true), None);
        assert_eq!(postgis("zz01000000000000000000", true), None);
    }

    #[test]
    fn a_reference_system_is_read_from_the_binary() {
        let Some(Value::Struct(values)) = postgis("0101000020E6100000000000000000F03F", true)
        else {
            panic!("a struct")
        };
        assert_eq!(values[1], Value::Int32(4326));
        assert_eq!(values.len(), 3);
    }
}
