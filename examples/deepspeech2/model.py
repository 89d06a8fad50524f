"""Deep Speech 2: convolutions over a spectrogram, recurrent layers in both directions, scores of letters."""

import staged as st
from staged import nn


class DeepSpeech2(nn.Module):
    """Scores of letters at every second place of a spectrogram; letter 0 is CTC's blank.

    Source: Amodei et al., Deep Speech 2: end-to-end speech recognition in English and Mandarin, 2015.
    """

    def __init__(self, bands, letters, hidden=64, layers=2, channels=16, dtype=st.f32):
        self.conv1 = nn.Conv2d(1, channels, (11, 11), stride=(2, 2), padding=(5, 5), bias=False, dtype=dtype)
        self.bn1 = nn.BatchNorm2d(channels, dtype=dtype)
        self.conv2 = nn.Conv2d(channels, channels, (11, 11), stride=(2, 1), padding=(5, 5), bias=False, dtype=dtype)
        self.bn2 = nn.BatchNorm2d(channels, dtype=dtype)
        heights = -(-bands // 2)
        features = channels * -(-heights // 2)
        self.rnns = nn.ModuleList(
            [nn.LSTM(hidden if n else features, hidden, bidirectional=True, dtype=dtype) for n in range(layers)]
        )
        self.norms = nn.ModuleList([nn.BatchNorm1d(hidden, dtype=dtype) for _ in range(layers)])
        self.out = nn.Linear(hidden, letters, dtype=dtype)
        self.hidden = hidden

    def forward(self, x):
        """log(probability) (places, batch, letters) in spectrograms (batch, bands, times): places = times / 2."""
        y = st.hardtanh(self.bn1(self.conv1(x[:, None])), 0.0, 20.0)
        y = st.hardtanh(self.bn2(self.conv2(y)), 0.0, 20.0)
        B, C, F, T = y.shape
        y = y.reshape(B, C * F, T).permute(2, 0, 1)
        for rnn, norm in zip(self.rnns, self.norms, strict=True):
            both, _ = rnn(y)
            y = both[:, :, : self.hidden] + both[:, :, self.hidden :]
            y = norm(y.reshape(T * B, self.hidden)).reshape(T, B, self.hidden)
        return st.log_softmax(self.out(y), axis=2)
