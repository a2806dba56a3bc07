"""Student's t distribution, and forecasts of a linear regression with the chance of a smaller value, by SciPy 1.16."""

from math import sqrt

from scipy.stats import linregress, t

for value, freedom in [(-6.314, 1), (1.0, 2), (-1.5, 3), (0.0, 4), (2.5, 5), (-1.9, 30), (-1.7, 101)]:
    print(f"({value}, {freedom}, {t.cdf(value, freedom)!r}),")

EARLY = [0.9, 0.7, 0.8, 0.5, 0.6]
LAST = [0.50, 0.42, 0.45, 0.28, 0.35]
line = linregress(EARLY, LAST)
mean = sum(EARLY) / len(EARLY)
spread = sum((x - mean) ** 2 for x in EARLY)
residuals = [y - line.intercept - line.slope * x for x, y in zip(EARLY, LAST)]
freedom = len(EARLY) - 2
for early in [0.65, 1.5]:
    variance = sum(residual**2 for residual in residuals) / freedom
    scale = sqrt(variance * (1 + 1 / len(EARLY) + (early - mean) ** 2 / spread))
    forecast = line.intercept + line.slope * early
    print(f"({early}, {float(forecast)!r}, {scale!r}, {float(t.cdf(0.36, freedom, forecast, scale))!r}),")
