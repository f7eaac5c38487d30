"""URLs, addresses and networks in CEL."""

import pytest

from matrixcontainer.kubeapi.cel.environment import evaluate


@pytest.mark.parametrize(
    "expression",
    [
        "url('https://u@EXAMPLE.test:80/x').getHostname() == 'EXAMPLE.test'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getHost() == '[::1]:80'",
        "url('/a?k=1&k=2&m=').getQuery() == {'k': ['1', '2'], 'm': ['']}",
        "!isURL('https://a b') && !isURL('../x') && isURL('/x') && !isURL('/x\\n')",
        "ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && !ip('10.0.0.1').isLoopback()",
        "ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
        "!ip('225.0.0.1').isLinkLocalMulticast() && ip('169.254.1.1').isLinkLocalUnicast()",
        "ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')",
        "['10.0.0.1'].all(ip, ip.startsWith('10.'))",
        "!isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('01.2.3.4') && isIP('::1')",
        "isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/255.0.0.0') && !isCIDR('10.0.0.0/08') && !isCIDR('10.0.0.0')",
        "cidr('10.1.0.0/8').prefixLength() == 8 && cidr('10.1.0.0/8').ip() == ip('10.1.0.0')",
        "cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.0.0/8') != cidr('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsIP('10.2.3.4') && !cidr('10.0.0.0/8').containsIP(ip('11.2.3.4'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/7'))",
        "!cidr('10.0.0.0/8').containsCIDR('2001:db8::/64')",
        "'hello mellow'.lastIndexOf('ello', 6) == 1 && 'hello mellow'.lastIndexOf('ello') == 7",
    ],
)
def test_functions_of_the_network(expression: str) -> None:
    assert evaluate(expression, {})


@pytest.mark.parametrize(
    "expression", ["ip('x').family() == 4", "cidr('10.0.0.0').prefixLength() == 8", "url('a b:c') == url('d')"]
)
def test_empty_optional_has_no_value(expression: str) -> None:
    with pytest.raises(ValueError, match=r"parse error|does not appear to be"):
        evaluate(expression, {})
