//! SASL GSSAPI at a real server.
use super::assert_says;
use zk_test_support::{Kdc, Raw, Server, java_client::JavaClient, raw::NO_AUTH};

zk_test_support::scenarios![on real;
    a_node_of_alice_is_hers_alone,
    a_server_with_another_clock_refuses_clients,
];

fn a_node_of_alice_is_hers_alone() {
    let kdc = Kdc::start();
    let server = Server::real().sasl_kerberos(&kdc).start();
    let java = JavaClient::new(&server.connect_string());
    let said = java.clone().kerberos(&kdc, "alice").run(&[
        "whoami",
        "create /a data-of-alice sasl:alice@ZK.TEST:cdrwa",
        "getAcl /a",
    ]);
    for part in ["sasl: alice@ZK.TEST", "Created /a", "'sasl,'alice@ZK.TEST\n: cdrwa"] {
        assert_says(&said, part);
    }
    let said = java.kerberos(&kdc, "bob").run(&["whoami", "get /a"]);
    for part in ["sasl: bob@ZK.TEST", "Insufficient permission : /a"] {
        assert_says(&said, part);
    }
    let nobody = Raw::connect(&server.connect_string()).unwrap().get_data("/a");
    assert_eq!(nobody.err().and_then(|e| e.code()), Some(NO_AUTH));
}

fn a_server_with_another_clock_refuses_clients() {
    let kdc = Kdc::start();
    let server = Server::real().sasl_kerberos(&kdc).shifted_clock(600).start();
    let said = JavaClient::new(&server.connect_string()).kerberos(&kdc, "alice").run(&["ls /"]);
    assert_says(&said, "AuthFailed for /");
    assert_says(&server.log(), "Clock skew too great");
}
