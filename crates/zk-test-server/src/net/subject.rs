//! The subject of a certificate as Java writes it: `X500Principal.getName()`, the form of RFC 2253.
//! ZooKeeper takes that for the identity of a client.

const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const T61: u8 = 0x14;
const IA5: u8 = 0x16;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version, which a certificate of version 1 does not have.
const VERSION: u8 = 0xa0;

/// The attributes that RFC 2253 names, by their OIDs.
const NAMES: [(&str, &[u8]); 9] = [
    ("CN", &[0x55, 4, 3]),
    ("C", &[0x55, 4, 6]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("STREET", &[0x55, 4, 9]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("UID", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1]),
    ("DC", &[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25]),
];

/// The subject of a certificate; `None` if the bytes are no certificate.
pub(super) fn of(certificate: &[u8]) -> Option<String> {
    let (_, mut certificate, _) = value(certificate, SEQUENCE)?;
    let mut fields = inner(&mut certificate, SEQUENCE)?;
    if fields.first() == Some(&VERSION) {
        inner(&mut fields, VERSION)?;
    }
    inner(&mut fields, INTEGER)?; // the serial number
    inner(&mut fields, SEQUENCE)?; // the algorithm of the signature
    inner(&mut fields, SEQUENCE)?; // the issuer
    inner(&mut fields, SEQUENCE)?; // the validity
    let mut subject = inner(&mut fields, SEQUENCE)?;
    let mut parts = Vec::new();
    while !subject.is_empty() {
        parts.push(relative_name(inner(&mut subject, SET)?)?);
    }
    parts.reverse(); // the last comes first
    Some(parts.join(","))
}

fn relative_name(mut set: &[u8]) -> Option<String> {
    let mut all = Vec::new();
    while !set.is_empty() {
        let mut attribute = inner(&mut set, SEQUENCE)?;
        let oid = inner(&mut attribute, OID)?;
        let (tag, text, whole) = value(attribute, *attribute.first()?)?;
        let name = NAMES.iter().find(|(_, known)| *known == oid).map(|(name, _)| *name);
        let text = matches!(tag, UTF8 | PRINTABLE | IA5 | T61)
            .then(|| std::str::from_utf8(text).ok())
            .flatten();
        all.push(match (name, text) {
            (Some(name), Some(text)) => format!("{name}={}", escaped(text)),
            (name, _) => {
                let hex: String = whole.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("{}=#{hex}", name.map_or_else(|| dotted(oid), ToOwned::to_owned))
            }
        });
    }
    Some(all.join("+"))
}

fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::new();
    for (i, c) in text.chars().enumerate() {
        let at_edge = c == ' ' && (i == 0 || i == last) || c == '#' && i == 0;
        if at_edge || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn dotted(oid: &[u8]) -> String {
    let (mut parts, mut number) = (Vec::new(), 0u64);
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if parts.is_empty() {
                let first = (number / 40).min(2);
                parts.push(first.to_string());
                number -= first * 40;
            }
            parts.push(number.to_string());
            number = 0;
        }
    }
    parts.join(".")
}

/// Takes the next value, which must have this tag, off `bytes`; gives its content.
fn inner<'a>(bytes: &mut &'a [u8], wanted: u8) -> Option<&'a [u8]> {
    let (_, content, whole) = value(bytes, wanted)?;
    *bytes = bytes.get(whole.len()..)?;
    Some(content)
}

/// The value at the beginning of `bytes`, which must have this tag: tag, content, and the whole.
fn value(bytes: &[u8], wanted: u8) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let content = rest.get(..length)?;
    let whole = bytes.get(..bytes.len() - rest.len() + length)?;
    (tag == wanted).then_some((tag, content, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, content.len() as u8], content.as_slice()].concat()
    }

    fn certificate(subject: &[&[u8]]) -> Vec<u8> {
        let empty = der(SEQUENCE, &[]);
        let (version, serial) = (der(VERSION, &[&der(INTEGER, &[&[2]])]), der(INTEGER, &[&[7]]));
        let subject = der(SEQUENCE, subject);
        let fields = der(SEQUENCE, &[&version, &serial, &empty, &empty, &empty, &subject]);
        der(SEQUENCE, &[&fields])
    }

    fn part(oid: &[u8], tag: u8, text: &str) -> Vec<u8> {
        der(SET, &[&der(SEQUENCE, &[&der(OID, &[oid]), &der(tag, &[text.as_bytes()])])])
    }

    #[test]
    fn names_are_written_as_java_writes_them() {
        let parts = [
            part(&[0x55, 4, 6], PRINTABLE, "DE"),
            part(&[0x55, 4, 10], UTF8, "Example, \u{dc}ber & Co"),
            part(&[0x55, 4, 3], UTF8, "#orders "),
        ];
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let name = of(&certificate(&parts));
        assert_eq!(name.as_deref(), Some("CN=\\#orders\\ ,O=Example\\, \u{dc}ber & Co,C=DE"));
        let mail = part(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1], IA5, "a@b");
        let name = of(&certificate(&[&mail]));
        assert_eq!(name.as_deref(), Some("1.2.840.113549.1.9.1=#1603614062"));
        assert_eq!(of(&certificate(&[])).as_deref(), Some(""));
    }

    #[test]
    fn what_is_no_certificate_has_no_name() {
        let whole = certificate(&[&part(&[0x55, 4, 3], UTF8, "orders")]);
        for end in 0..whole.len() {
            assert_eq!(of(&whole[..end]), None);
        }
        assert_eq!(of(&[SEQUENCE, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
