"""One-sided p-values of the signed-rank test, as Optuna's WilcoxonPruner asks SciPy 1.17 for them."""

from scipy.stats import wilcoxon

SAMPLES = {
    "few": [0.3, -0.1, 0.7, 0.2, 0.9, -0.4],
    "ties and zeros": [1.0, 0.0, 2.0, -1.0, 2.0, 0.0, 3.0, 1.0],
    "forty": [((k * 37) % 41 - 17) / 10 + k / 1000 for k in range(40)],
    "eighty with ties": [((k * 37) % 23 - 9) / 10 for k in range(80)],
}
for name, sample in SAMPLES.items():
    print(name, repr(wilcoxon(sample, alternative="greater", zero_method="zsplit").pvalue))
