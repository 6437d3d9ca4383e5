package hostile

// noWay are the errors of a machine that is connected to nothing.
var noWay = want(blocked("ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED", "EAFNOSUPPORT", "EPERM", "EACCES", "EINVAL"))

// noName is what name resolution says there.
var noName = want(blocked("-", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "EPERM"))

// metadata is the control of every spelling: a service at that address, in a
// network namespace of its own, is reached by it.
func metadata(address string) control {
	return control{"a service at that address in a network namespace of its own is reached", func(b *bench, words []string) {
		b.through(b.root(), append(do("with-service", address, "80"), words...))
	}}
}

var aws = metadata("169.254.169.254")

var networkCases = []attack{
	{what: "metadata", do: do("connect", "169.254.169.254", "80"), want: noWay, bites: aws},
	{what: "metadata_decimal", do: do("connect", "2852039166", "80"), want: noWay, bites: aws},
	{what: "metadata_hexadecimal", do: do("connect", "0xa9fea9fe", "80"), want: noWay, bites: aws},
	{what: "metadata_octal", do: do("connect", "0251.0376.0251.0376", "80"), want: noWay, bites: aws},
	{what: "metadata_mixed", do: do("connect", "0xa9.254.0251.254", "80"), want: noWay, bites: aws},
	{what: "metadata_short", do: do("connect", "169.16689662", "80"), want: noWay, bites: aws},
	{what: "metadata_mapped", do: do("connect", "::ffff:169.254.169.254", "80"), want: noWay, bites: aws},
	{what: "metadata_mapped_hexadecimal", do: do("connect", "::ffff:a9fe:a9fe", "80"), want: noWay, bites: aws},
	{what: "metadata_nat64", do: do("connect", "64:ff9b::a9fe:a9fe", "80"), want: noWay},
	{what: "metadata_6to4", do: do("connect", "2002:a9fe:a9fe::1", "80"), want: noWay},
	{what: "metadata_ipv6", do: do("connect", "fd00:ec2::254", "80"), want: noWay},
	{what: "metadata_containers", do: do("connect", "169.254.170.2", "80"), want: noWay, bites: metadata("169.254.170.2")},
	{what: "metadata_second_cloud", do: do("connect", "168.63.129.16", "80"), want: noWay, bites: metadata("168.63.129.16")},
	{what: "metadata_third_cloud", do: do("connect", "100.100.100.200", "80"), want: noWay, bites: metadata("100.100.100.200")},
	{what: "metadata_fourth_cloud", do: do("connect", "192.0.0.192", "80"), want: noWay, bites: metadata("192.0.0.192")},
	{what: "metadata_by_name", do: do("connect", "metadata.google.internal", "80"), want: noName},
	{what: "host_loopback", do: do("connect", "127.0.0.1", "$port"), want: noWay, bites: asUser},
	{what: "host_loopback_other", do: do("connect", "127.1.2.3", "$port"), want: noWay, bites: asUser},
	{what: "host_loopback_decimal", do: do("connect", "2130706433", "$port"), want: noWay, bites: asUser},
	{what: "host_loopback_6", do: do("connect", "::1", "$port"), want: noWay, bites: asUser},
	{what: "host_loopback_mapped", do: do("connect", "::ffff:127.0.0.1", "$port"), want: noWay, bites: asUser},
	{what: "host_unspecified", do: do("connect", "0.0.0.0", "$port"), want: noWay, bites: asUser},
	{what: "host_own_address", do: do("connect", "$address", "$port"), want: noWay, bites: asUser},
	{what: "host_datagram", do: do("send", "127.0.0.1", "$port"), want: noWay, bites: asUser},
	{what: "host_abstract_socket", do: do("connect-unix", "$abstract"), want: want(blocked("ECONNREFUSED", "ENOENT")), bites: asUser},
	{what: "engine_socket", do: do("connect-unix", "/var/run/docker.sock"), want: want(blocked("ENOENT", "ECONNREFUSED"))},
	{what: "bus_socket", do: do("connect-unix", "/run/dbus/system_bus_socket"), want: want(blocked("ENOENT", "ECONNREFUSED"))},
	{what: "service_socket", do: do("connect-unix", "$service"), want: want(blocked("ENOENT", "ECONNREFUSED"))},
	{what: "gateway", do: do("connect", "10.0.0.1", "80"), want: noWay, bites: metadata("10.0.0.1")},
	{what: "engine_bridge", do: do("connect", "172.17.0.1", "2375"), want: noWay},
	{what: "internet", do: do("connect", "1.1.1.1", "443"), want: noWay},
	{what: "internet_6", do: do("connect", "2606:4700:4700::1111", "443"), want: noWay},
	{what: "broadcast", do: do("send", "255.255.255.255", "67"), want: want(blocked("ENETUNREACH", "EACCES", "EHOSTUNREACH", "EPERM", "EADDRNOTAVAIL"))},
	{what: "multicast", do: do("send", "224.0.0.251", "5353"), want: want(blocked("ENETUNREACH", "EACCES", "EHOSTUNREACH", "EPERM", "EADDRNOTAVAIL"))},
	{what: "resolve", do: do("resolve", "example.com"), want: noName},
	{what: "resolve_localhost_name", do: do("connect", "localhost", "$port"), want: want(blocked("ECONNREFUSED", "-", "ENETUNREACH", "EADDRNOTAVAIL")), bites: asUser},
	{what: "resolve_at_a_public_server", do: do("resolve-at", "example.com", "udp", "8.8.8.8:53"), want: noName},
	{what: "resolve_at_a_public_server_tcp", do: do("resolve-at", "example.com", "tcp", "8.8.8.8:53"), want: noName},
	{what: "resolve_at_the_stub", do: do("resolve-at", "example.com", "udp", "127.0.0.53:53"), want: noName},
	{what: "ping", do: do("ping", "8.8.8.8"), want: want(blocked("ENETUNREACH", "EACCES", "EPERM", "EHOSTUNREACH"))},
	{what: "interfaces", do: do("interfaces"), want: want(nothing)},
	{what: "add_address", do: do("add-address", "lo:1", "169.254.169.254"), want: want(blocked("EPERM", "EACCES", "ENODEV", "EINVAL", "ENOTTY")), bites: instead(asRoot, "add-address", "lo", "169.254.169.254")},
	{what: "add_route", do: do("add-route"), want: want(blocked("EPERM", "EACCES", "EOPNOTSUPP", "ENOTSUP", "EINVAL"))},
	{what: "tunnel_device", do: do("open-rw", "/dev/net/tun"), want: want(exited(0)), accepted: tunnelOpens},
	{what: "tunnel_interface", do: do("tunnel"), want: want(blocked("EPERM", "EACCES", "ENODEV", "EINVAL"))},
	{what: "tunnel_in_a_network_namespace", do: do("in-namespaces", "tunnel-then-connect", "$address", "$port"), want: noWay},
	{what: "in_a_network_namespace", do: do("in-namespaces", "connect", "$address", "$port"), want: noWay},
}
