"""The tables that Lu et al. 2023 print.

They are taken from the published paper (Findings of EMNLP 2023), with all printed decimals and its names.
"""

from evaluator.reproductions.cells import PrintedTable, printed_cells

GPT3 = "GPT3-175B"
GENERAL = ("accuracy", "acc. low PVI", "acc. high PVI", "PVI for TRUE", "PVI for FALSE")
"""Columns of tables 1 and 14: `low` and `high` are the fifths of queries with the lowest and highest PVI."""

CORRELATION = ("avg.", "med.", "r > 0.6", "r < 0.3")
ANOVA = ("F-statistic", "p-value")
EXEMPLARS = ("random", "hardest")


TABLES = (
    PrintedTable(
        "1",
        "GPT3-175B, by dataset",
        GENERAL,
        """
CoLA     0.7242 0.0000 1.0000 1.1640 -7.6833
MultiNLI 0.7322 0.0000 0.9738 2.5702 -3.5963
RTE      0.7401 0.0417 0.9345 1.7554 -3.9994
SNLI     0.6704 0.0000 0.9967 2.5118 -4.7711
""",
    ),
    PrintedTable(
        "14(a)",
        "By dataset",
        GENERAL,
        """
BoolQ           0.4543 0.3173 0.6241 0.2009 -0.1075
CoLA            0.5175 0.3374 0.6586 0.2416 -0.1486
MultiNLI        0.3483 0.2126 0.4691 0.6609 0.1094
RTE             0.4482 0.3330 0.5287 0.8452 0.7243
SNLI            0.3426 0.2715 0.3929 0.5872 0.2482
Health Advice   0.3027 0.1874 0.4336 0.4162 0.0101
Causal Language 0.2277 0.1321 0.3499 0.5136 -0.1918
""",
    ),
    PrintedTable(
        "14(b)",
        "By model",
        GENERAL,
        """
GPT2-125M    0.3753 0.2077 0.5523 0.7691 0.2888
GPT-Neo-1.3B 0.3610 0.3077 0.3930 0.1842 0.0808
GPT-Neo-2.7B 0.3672 0.3141 0.4137 0.3880 0.2858
GPT-J-6B     0.3775 0.3553 0.4199 0.1292 0.0823
GPT-JT-6B    0.3811 0.2792 0.4555 0.2156 0.0129
Alpaca-7B    ? ? ? ? ?
Alpaca-13B   ? ? ? ? ?
GPT3-175B    0.7167 0.0104 0.9763 2.0003 -5.0125
""",
    ),
    PrintedTable(
        "2",
        "Correlations across demonstration sets (Exemplars) and numbers of shots (Shots)",
        CORRELATION,
        """
Exemplars 0.55 0.71 59.4% 22.9%
Shots     0.44 0.74 57.6% 29.9%
""",
    ),
    PrintedTable(
        "3",
        "One-way ANOVA of MultiNLI, by model",
        ANOVA,
        """
GPT2-125M    0.2958 0.7634
GPT-Neo-1.3B 0.5543 0.6239
GPT-Neo-2.7B 0.0383 0.9629
GPT-J-6B     0.2604 0.7866
GPT-JT-6B    0.3099 0.7545
Alpaca-7B    0.0363 0.9647
Alpaca-13B   0.4304 0.6850
""",
    ),
    PrintedTable(
        "7",
        "Accuracy of GPT3-175B by choice of demonstrations",
        EXEMPLARS,
        """
CoLA     0.7571 0.7230
MultiNLI 0.7180 0.7380
SNLI     0.6700 0.6980
""",
    ),
    PrintedTable(
        "15",
        "One-way ANOVA over demonstration sets",
        ANOVA,
        """
BoolQ, GPT2-125M              1.0405 0.4537
BoolQ, GPT-Neo-1.3B           0.2433 0.7981
BoolQ, GPT-Neo-2.7B           0.5357 0.6325
BoolQ, GPT-J-6B               0.1484 0.8680
BoolQ, GPT-JT-6B              0.1978 0.8305
BoolQ, Alpaca-7B              0.9711 0.4729
BoolQ, Alpaca-13B             0.3944 0.7046
CoLA, GPT2-125M               0.3024 0.7592
CoLA, GPT-Neo-1.3B            0.8949 0.4957
CoLA, GPT-Neo-2.7B            0.1543 0.8634
CoLA, GPT-J-6B                2.3202 0.2460
CoLA, GPT-JT-6B               0.1690 0.8520
CoLA, Alpaca-7B               1.8573 0.2986
CoLA, Alpaca-13B              1.0781 0.4438
MultiNLI, GPT2-125M           0.2958 0.7634
MultiNLI, GPT-Neo-1.3B        0.5543 0.6239
MultiNLI, GPT-Neo-2.7B        0.0383 0.9629
MultiNLI, GPT-J-6B            0.2604 0.7866
MultiNLI, GPT-JT-6B           0.3099 0.7545
MultiNLI, Alpaca-7B           0.0363 0.9647
MultiNLI, Alpaca-13B          0.4304 0.6850
RTE, GPT2-125M                0.4876 0.6556
RTE, GPT-Neo-1.3B             0.0803 0.9247
RTE, GPT-Neo-2.7B             0.7250 0.5535
RTE, GPT-J-6B                 1.2598 0.4007
RTE, GPT-JT-6B                1.5383 0.3468
RTE, Alpaca-7B                0.4289 0.6857
RTE, Alpaca-13B               0.2346 0.8042
SNLI, GPT2-125M               0.3518 0.7290
SNLI, GPT-Neo-1.3B            1.5983 0.3369
SNLI, GPT-Neo-2.7B            3.0431 0.1897
SNLI, GPT-J-6B                0.7946 0.5285
SNLI, GPT-JT-6B               62.8332 0.0036
SNLI, Alpaca-7B               0.1426 0.8726
SNLI, Alpaca-13B              0.0905 0.9158
Health Advice, GPT2-125M      0.3786 0.7135
Health Advice, GPT-Neo-1.3B   5.7712 0.0937
Health Advice, GPT-Neo-2.7B   0.0386 0.9626
Health Advice, GPT-J-6B       1.3833 0.3752
Health Advice, GPT-JT-6B      0.4463 0.6766
Health Advice, Alpaca-7B      0.1852 0.8398
Health Advice, Alpaca-13B     0.6809 0.5704
Causal Language, GPT2-125M    0.1922 0.8345
Causal Language, GPT-Neo-1.3B 36.8063 0.0077
Causal Language, GPT-Neo-2.7B 12.0928 0.0367
Causal Language, GPT-J-6B     0.4149 0.6933
Causal Language, GPT-JT-6B    1.6823 0.3236
Causal Language, Alpaca-7B    0.0084 0.9917
Causal Language, Alpaca-13B   1.3805 0.3758
""",
    ),
    PrintedTable(
        "9",
        "Queries by dataset",
        ("testing set size",),
        """
BoolQ           3270
CoLA            527
MultiNLI        10000
RTE             277
SNLI            10000
Health Advice   4784
Causal Language 2446
""",
    ),
)

PRINTED_CELLS = printed_cells(TABLES, decimals=4)
