"""The PHY arithmetic against the standard's formulas, known channels and a slow reference."""

from __future__ import annotations

import math

import pytest
import torch

from testbed.executors import phy_kernels as phy

CPU = torch.device("cpu")


def draw(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("order", "bits", "expected"),
    [  # TS 38.211 5.1.3-5.1.6, by hand
        (2, "01", (1 - 1j) / math.sqrt(2)),
        (4, "0000", (1 + 1j) / math.sqrt(10)),
        (4, "1011", (-3 + 3j) / math.sqrt(10)),
        (6, "000000", (3 + 3j) / math.sqrt(42)),
        (6, "101110", (-7 + 5j) / math.sqrt(42)),
        (8, "00000000", (5 + 5j) / math.sqrt(170)),
        (8, "01101011", (15 - 7j) / math.sqrt(170)),
    ],
)
def test_modulation_follows_the_standard(order, bits, expected):
    table = phy.constellation(order)
    torch.testing.assert_close(table[int(bits, 2)].item(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_constellation_has_unit_power_and_is_gray(order):
    table = phy.constellation(order)
    assert table.abs().square().mean().item() == pytest.approx(1.0, abs=1e-5)
    distance = (table[:, None] - table[None]).abs() + 9 * torch.eye(1 << order)
    near = distance < distance.min() * 1.01
    labels = torch.arange(1 << order)
    differing = labels[:, None] ^ labels[None]
    assert all(bin(int(bits)).count("1") == 1 for bits in differing[near])


def bits_of(labels, order):
    return (labels[..., None] >> torch.arange(order - 1, -1, -1)) & 1


@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_llr_signs_are_the_bits(order):
    labels = torch.arange(1 << order)
    llr = phy.demap(phy.constellation(order)[labels], order)  # [order / 2, n, 2]
    hard = (llr < 0).permute(1, 0, 2).flatten(1).long()
    assert torch.equal(hard, bits_of(labels, order))


@pytest.mark.parametrize("order", [2, 4])
def test_llr_is_max_log_where_that_is_linear(order):
    # Exact max-log by exhaustive search. 16QAM's first bit is steeper beyond the outer points.
    table = phy.constellation(order)
    scale = math.sqrt({2: 2, 4: 10}[order])
    points = torch.complex(torch.linspace(-1.9, 1.9, 41), torch.linspace(1.9, -1.9, 41)) / scale
    squared = (points[:, None] - table[None]).abs().square() * scale**2 / 4
    bits = bits_of(torch.arange(1 << order), order).bool()
    exact = torch.stack(
        [
            squared[:, bits[:, k]].min(1).values - squared[:, ~bits[:, k]].min(1).values
            for k in range(order)
        ],
        dim=1,
    )
    llr = phy.demap(points, order).permute(1, 0, 2).flatten(1)
    torch.testing.assert_close(llr, exact, rtol=1e-4, atol=1e-4)


def slot(n_prb, antennas, layers, channel, order=2, seed=3):
    """(received grid [14, A, 12 P], pilots, sent labels [L, 12, 12 P]) over a channel [A, L, 12 P].

    DMRS of layer l only on its own comb, as the estimator expects.
    """
    width, comb = 12 * n_prb, phy.pilot_comb(layers)
    labels = torch.randint(0, 1 << order, (phy.SYMBOLS, layers, width), generator=draw(seed))
    sent = phy.constellation(order)[labels]
    phase = torch.rand(width, generator=draw(seed + 1)) * 2 * math.pi
    pilots = torch.polar(torch.ones(width), phase)
    subcarriers = torch.arange(width)
    for symbol in phy.DMRS_SYMBOLS:
        for layer in range(layers):
            sent[symbol, layer] = pilots * (subcarriers % comb == layer)
    received = torch.einsum("alk,slk->sak", channel, sent)
    return received, pilots, labels[list(phy.DATA_SYMBOLS)]


def receive(received, pilots, layers, noise_variance=1e-6):
    estimate = phy.estimate_channel(received[list(phy.DMRS_SYMBOLS)], pilots, layers)
    weights = phy.mmse_weights(estimate, noise_variance)
    return estimate, phy.equalise(weights, phy.per_prb(received))


def hard_labels(symbols, order, n_prb):
    """[12 symbols, L, 12 P] labels of equalised [P, L, 144]."""
    llr = phy.demap(symbols, order)
    hard = (llr < 0).long().permute(1, 2, 3, 0, 4).flatten(3)
    labels = (hard << torch.arange(order - 1, -1, -1)).sum(-1)
    return labels.view(n_prb, -1, 12, 12).permute(2, 1, 0, 3).flatten(2)


@pytest.mark.parametrize("order", [2, 8])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_flat_channel_is_estimated_and_inverted_exactly(layers, order):
    antennas, n_prb = 4, 5
    flat = torch.randn(antennas, layers, 1, dtype=torch.complex64, generator=draw())
    received, pilots, labels = slot(n_prb, antennas, layers, flat.expand(-1, -1, 12 * n_prb), order)
    estimate, symbols = receive(received, pilots, layers)
    torch.testing.assert_close(estimate, flat[..., 0].expand(n_prb, -1, -1), rtol=1e-4, atol=1e-4)
    assert torch.equal(hard_labels(symbols, order, n_prb), labels)


def test_selective_channel_is_followed_from_prb_to_prb():
    antennas, n_prb = 4, 20
    turn = torch.exp(2j * math.pi * torch.arange(12 * n_prb) * 3 / 4096)  # a delay of 3 samples
    taps = torch.randn(2, antennas, 1, 1, dtype=torch.complex64, generator=draw())
    channel = taps[0] + 0.3 * taps[1] * turn.to(torch.complex64)
    received, pilots, labels = slot(n_prb, antennas, 1, channel)
    estimate, symbols = receive(received, pilots, 1)
    truth = channel.view(antennas, 1, n_prb, 12).mean(-1).permute(2, 0, 1)
    torch.testing.assert_close(estimate, truth, rtol=0, atol=0.02)
    assert torch.equal(hard_labels(symbols, 2, n_prb), labels)


def test_mmse_is_the_regularised_inverse():
    channel = torch.randn(3, 4, 2, dtype=torch.complex64, generator=draw())
    stacked = torch.cat((channel, 0.5 * torch.eye(2).expand(3, 2, 2)), dim=1)
    expected = torch.linalg.pinv(stacked)[:, :, :4]  # Tikhonov by an extended least squares
    torch.testing.assert_close(phy.mmse_weights(channel, 0.25), expected, rtol=1e-4, atol=1e-5)


def test_ofdm_and_precoding_round_trip():
    symbols = torch.zeros(14, 2, 512, dtype=torch.complex64)
    symbols[..., :300] = torch.randn(14, 2, 300, dtype=torch.complex64, generator=draw())
    precoder = torch.randn(4, 2, dtype=torch.complex64, generator=draw(1))
    samples = phy.ofdm_modulate(phy.precode(precoder, symbols[..., :300]), 512)
    grid = phy.ofdm_demodulate(samples, 300)
    torch.testing.assert_close(
        torch.linalg.pinv(precoder) @ grid, symbols[..., :300], rtol=1e-3, atol=1e-4
    )


class TestCode:
    def test_is_regular(self):
        code = phy.regular_code(CPU)
        variables = code.to_check.view(4, code.checks) % code.bits
        assert (torch.bincount(variables.flatten()) == 3).all()
        assert all(len(set(column.tolist())) == 4 for column in variables.T)

    def test_corrects_noise(self):
        # All zeros is a codeword of a linear code; by symmetry it stands for all of them.
        code, decoder = phy.regular_code(CPU), phy.SumProductDecoder(phy.regular_code(CPU), 32)
        llr = 1.0 + 0.85 * torch.randn(code.bits, 32, generator=draw(5))
        raw = (llr < 0).float().mean().item()
        decoded = (decoder.decode(llr, 20) < 0).float().mean().item()
        assert 0.08 < raw < 0.16  # Q(1 / 0.85) = 0.12
        assert decoded < raw / 20

    def test_equals_a_slow_reference(self):
        code = phy.regular_code(CPU, bits=16, seed=2)
        llr = torch.randn(16, 2, generator=draw(7))
        decoded = phy.SumProductDecoder(code, 2).decode(llr, 3)
        checks = (code.to_check.view(4, code.checks) % 16).T.tolist()
        for column in range(2):
            expected = slow_sum_product(checks, llr[:, column].tolist(), 3)
            torch.testing.assert_close(
                decoded[:, column], torch.tensor(expected), rtol=1e-3, atol=1e-3
            )

    def test_refuses_more_blocks_than_it_has_room_for(self):
        with pytest.raises(ValueError, match="at most 2"):
            phy.SumProductDecoder(phy.regular_code(CPU), 2).decode(torch.zeros(128, 3), 1)

    def test_encoding_is_the_product_modulo_two(self):
        bits = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
        generator = torch.tensor([[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        assert phy.encode(bits, generator).tolist() == [[0.0, 1.0], [0.0, 0.0]]


def slow_sum_product(checks, llr, iterations):
    """Flooding sum-product by the tanh rule, edge by edge."""
    messages = {(check, bit): 0.0 for check, bits in enumerate(checks) for bit in bits}
    total = list(llr)
    for _ in range(iterations):
        inward = {(check, bit): total[bit] - value for (check, bit), value in messages.items()}
        for check, bits in enumerate(checks):
            for bit in bits:
                others = [math.tanh(inward[check, other] / 2) for other in bits if other != bit]
                messages[check, bit] = 2 * math.atanh(math.prod(others))
        total = [
            value + sum(m for (_, of), m in messages.items() if of == bit)
            for bit, value in enumerate(llr)
        ]
    return total
